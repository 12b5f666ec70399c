// One row of a dataset as its file gives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace megatoken {

struct RawRow {
  enum class Kind { text, prompt_completion, ids, json };
  Kind kind = Kind::text;
  std::string text;                     // text; the prompt of prompt_completion; json: the object, not yet looked into
  std::string completion;               // prompt_completion
  std::vector<std::int32_t> input_ids;  // ids
  std::vector<std::int32_t> labels;     // ids with has_labels; as long as input_ids
  bool has_labels = false;
  std::shared_ptr<const std::string> file;
  int64 line = 0;  // 1-based, of the row's first byte

  std::string place() const;  // "file:line", for messages
};

// Reads one JSON object as a row (keys and kinds: docs/data.md). FileError beginning with row.place(), which the caller
// has set: malformed JSON, a wrong type, a key that stands twice, rows that would train something else than they say
// (masks, positions), kinds that aren't read (messages).
void parse_json_row(std::string_view json, const std::string& text_field, RawRow& row);

// The same for a row of Kind::json, in place; other rows stay as they are.
void parse_row(const std::string& text_field, RawRow& row);

}  // namespace megatoken
