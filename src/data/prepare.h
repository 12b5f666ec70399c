// Rows of text or ids made ready for training, with TRL's SFT semantics (docs/data.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "data/dataset.h"
#include "data/reader.h"

namespace megatoken {

// long_rows. concatenate: all rows are laid one behind the other, in the order of the files, and cut every max_length
// tokens.
enum class LongRowRule { truncate, split, concatenate };

// How text becomes ids.
struct TextEncoder {
  // The ids of any bytes, with the special tokens that the tokenizer adds by default. Adds the number of invalid UTF-8
  // sequences that it replaced to `invalid_utf8`; may use `threads` threads. Called from several threads at once.
  std::function<std::vector<std::int32_t>(std::string_view text, int threads, int64& invalid_utf8)> encode;
  std::string eos_token;  // its text; empty: none is appended
  std::string identity;   // tells one tokenizer from another in the token cache; empty: nothing is cached
};

struct PrepareOptions {
  std::optional<int64> max_length = 1024;  // tokens; none: no limit
  bool max_length_given = false;           // by the user; otherwise a longer row is refused, not cut
  LongRowRule long_rows = LongRowRule::truncate;
  std::optional<bool> completion_only_loss;  // none: true for prompt/completion rows
  int64 vocab_size = 0;                      // of the model; ids and labels must be below it
  int threads = 1;                           // for encode
};

// What happened to the rows. dropped_tokens: tokens of dropped rows and tokens cut off; reasons: rows by what was done.
struct PrepareCounts {
  int64 rows_read = 0;
  int64 tokens_read = 0;
  int64 dropped_rows = 0;
  int64 dropped_tokens = 0;
  int64 truncated_rows = 0;
  int64 split_rows = 0;         // rows that lie in several: cut in windows, or between two rows of joined texts
  int64 joined_texts = 0;       // texts and other rows that were joined by long_rows: concatenate
  int64 joined_rows = 0;        // rows that they gave
  int64 invalid_utf8 = 0;       // byte sequences replaced by U+FFFD
  int64 prompt_mismatches = 0;  // rows whose prompt's last tokens are others alone than before the completion
  std::map<std::string, int64> reasons;

  bool anything_lost() const { return dropped_rows || dropped_tokens || truncated_rows; }
  bool anything_to_say() const {
    return anything_lost() || split_rows || joined_texts || invalid_utf8 || prompt_mismatches;
  }
};

// What was cut, joined, dropped or replaced, for a reader: "dropped 2 rows and 3 tokens (fewer than two tokens: 2),
// ..."; empty when nothing was.
std::string describe(const PrepareCounts& counts);

nlohmann::json counts_to_json(const PrepareCounts& counts);
// FileError beginning with `where`.
PrepareCounts counts_from_json(const nlohmann::json& json, const std::string& where);

// Reads and prepares a whole dataset. FileError: whatever the reader refuses, ids that the model doesn't have, nothing
// left to train on. ConfigError naming max_length: a row is longer than the default that nobody chose, or texts are to
// be joined to a length that nobody chose.
PreparedDataset prepare_dataset(const DatasetSpec& spec, const TextEncoder& encoder, const PrepareOptions& options,
                                PrepareCounts& counts);

}  // namespace megatoken
