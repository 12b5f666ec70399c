// A model's tokenizer as the preparation uses it.
#pragma once

#include <memory>
#include <string>

#include "data/prepare.h"
#include "text/tokenizer.h"

namespace megatoken {

// eos_token: the configuration's; empty: the tokenizer's own (without one, rows get no end, which is said in a
// warning). ConfigError when the tokenizer's vocabulary lacks it.
TextEncoder make_text_encoder(std::shared_ptr<const Tokenizer> tokenizer, const std::string& eos_token = "");

}  // namespace megatoken
