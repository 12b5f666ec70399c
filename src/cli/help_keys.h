// The key table for people and for tools: train --help-keys, the references in docs/configuration.md and docs/from_trl.md.
#pragma once

#include <string>

namespace megatoken {

std::string keys_as_text();
std::string keys_as_markdown();
// A JSON list of {name, use, group, type, default, aliases, fine, meaning}; use is honoured, accepted or refused, fine
// the values at which a refused key is no error (null always is), meaning what it does or why not.
std::string keys_as_json();

}  // namespace megatoken
