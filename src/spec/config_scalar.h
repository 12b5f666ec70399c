// Plain scalars of YAML and of the command line: what "12", "2e-5", "no", "24GiB" mean.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace megatoken {

// As YAML 1.1 (and so as TRL's reader) with one difference: 1e-5 is a number. Null, a boolean, an integer, a number, or
// else the text itself.
nlohmann::ordered_json resolve_scalar(std::string_view text);

// Bytes of "24GiB", "80 GB", "1.5TiB", "4096"; any case; nullopt when it is none.
std::optional<int64> parse_bytes(std::string_view text);

// yes / no as command lines write it (y, t, true, 1, ...); nullopt when it is neither.
std::optional<bool> parse_flag(std::string_view text);

bool is_utf8(std::string_view text);

// A user's text made fit for a message: control characters escaped, cut to `most` bytes.
std::string one_line(std::string_view text, std::size_t most = 120);

}  // namespace megatoken
