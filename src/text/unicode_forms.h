// Unicode normalization forms as the `tokenizers` package makes them.
#pragma once

#include <memory>

#include "text/normalizer.h"

namespace megatoken {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

std::shared_ptr<const NormalizerStep> make_unicode_form(UnicodeForm form);

}  // namespace megatoken
