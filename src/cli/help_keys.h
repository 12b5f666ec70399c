// The key table for people: train --help-keys, and the reference in docs/configuration.md.
#pragma once

#include <string>

namespace megatoken {

std::string keys_as_text();
std::string keys_as_markdown();

}  // namespace megatoken
