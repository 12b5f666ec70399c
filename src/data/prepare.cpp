#include "data/prepare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "base/error.h"
#include "data/row_joiner.h"
#include "io/json.h"

namespace megatoken {
namespace {

// Reasons as they stand in the log.
constexpr const char* kTooShort = "fewer than two tokens";
constexpr const char* kUnlabelled = "no labelled token";
constexpr const char* kUnlabelledCut = "no labelled token before max_length";
constexpr const char* kTruncated = "cut at max_length";
constexpr const char* kSplit = "split at max_length";
constexpr const char* kContinued = "continued in the next row";
constexpr const char* kEmpty = "empty";

// Rows encoded at a time: enough for all threads, bounded in memory.
constexpr int64 kGroupRows = 4096;
constexpr int64 kGroupBytes = int64{64} << 20;

struct EncodedRow {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;  // when has_labels
  bool has_labels = false;
  int64 first_label = 0;  // otherwise: labels are the ids from here on
  int64 invalid_utf8 = 0;
  bool prompt_mismatch = false;
  bool empty = false;  // nothing but the end of a text, perhaps
  std::exception_ptr error;
};

void append_eos(std::string& text, const std::string& eos) {
  if (!text.ends_with(eos)) text += eos;
}

// TRL 1.16's SFTTrainer._prepare_dataset for one row: the end-of-sequence text is appended where the text doesn't end
// with it; the completion begins where the ids of the prompt alone and of prompt and completion together part.
EncodedRow encode_row(RawRow& row, const TextEncoder& encoder, const PrepareOptions& options, int threads) {
  EncodedRow out;
  switch (row.kind) {
    case RawRow::Kind::ids:
      out.empty = row.input_ids.empty();
      out.ids = std::move(row.input_ids);
      out.labels = std::move(row.labels);
      out.has_labels = row.has_labels;
      break;
    case RawRow::Kind::json:
      check(false, "{}: a row that was not parsed", row.place());
      break;
    case RawRow::Kind::text:
      out.empty = row.text.empty();
      append_eos(row.text, encoder.eos_token);
      out.ids = encoder.encode(row.text, threads, out.invalid_utf8);
      break;
    case RawRow::Kind::prompt_completion: {
      out.empty = row.text.empty() && row.completion.empty();
      append_eos(row.completion, encoder.eos_token);
      int64 counted_below = 0;
      const std::vector<std::int32_t> prompt = encoder.encode(row.text, threads, counted_below);
      out.ids = encoder.encode(row.text + row.completion, threads, out.invalid_utf8);
      const auto [end, ignored] = std::mismatch(prompt.begin(), prompt.end(), out.ids.begin(), out.ids.end());
      out.prompt_mismatch = end != prompt.end();
      if (options.completion_only_loss.value_or(true)) out.first_label = end - prompt.begin();
      break;
    }
  }
  return out;
}

class Preparation {
 public:
  Preparation(const std::string& text_field, const TextEncoder& encoder, const PrepareOptions& options,
              PrepareCounts& counts)
      : text_field_(text_field),
        encoder_(encoder),
        options_(options),
        counts_(counts),
        joiner_(options.max_length.value_or(1), [this](auto ids, auto labels) {
          ++counts_.joined_rows;
          add(ids, labels);
        }) {
    if (options.long_rows == LongRowRule::concatenate && !(options.max_length && options.max_length_given))
      throw ConfigError(
          "max_length: long_rows: concatenate needs it, as the length of the rows that texts are joined to");
  }

  void encode_group(std::vector<RawRow>& group) {
    std::vector<EncodedRow> encoded(group.size());
    const auto n = static_cast<int64>(group.size());
    // Many rows: a thread for each; a few long ones: all threads on each.
    const bool by_rows = options_.threads > 1 && n >= 2 * options_.threads;
    const int inside = by_rows ? 1 : options_.threads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(options_.threads) if (by_rows)
    for (int64 i = 0; i < n; ++i) {
      EncodedRow& out = encoded[static_cast<std::size_t>(i)];
      try {
        RawRow& row = group[static_cast<std::size_t>(i)];
        parse_row(text_field_, row);
        out = encode_row(row, encoder_, options_, inside);
      } catch (...) {
        out.error = std::current_exception();
      }
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (encoded[i].error) rethrow_at(group[i], encoded[i].error);
      take(group[i], encoded[i]);
      encoded[i] = {};
    }
    group.clear();
  }

  PreparedDataset finish(const DatasetSpec& spec) {
    joiner_.finish();
    if (dataset_.rows() > 0) return std::move(dataset_);
    const std::string name = printable(spec.data_files.empty() ? spec.name : spec.data_files.front(), 4096);
    if (counts_.rows_read == 0) throw FileError("{}: no rows", name);
    std::vector<std::string> reasons;
    for (const auto& [reason, rows] : counts_.reasons) reasons.push_back(fmt::format("{}: {}", reason, rows));
    throw FileError("{}: nothing is left to train on of {} rows ({}){}", name, counts_.rows_read,
                    fmt::join(reasons, "; "),
                    counts_.truncated_rows > 0 ? "; a larger max_length or long_rows: split keeps more" : "");
  }

 private:
  [[noreturn]] static void rethrow_at(const RawRow& row, const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const FileError& fault) {
      const std::string place = row.place();
      if (std::string_view(fault.what()).starts_with(place)) throw;
      throw FileError("{}: {}", place, fault.what());
    }
  }

  void check_ids(const RawRow& row, std::span<const std::int32_t> ids, const char* what, bool labels) const {
    for (const std::int32_t id : ids) {
      if ((id >= 0 && id < options_.vocab_size) || (labels && id == kNoLabel)) continue;
      throw FileError("{}: {} {} is beyond the model's vocabulary of {}{}", row.place(), what, id, options_.vocab_size,
                      row.kind == RawRow::Kind::ids ? "" : " (is the tokenizer this model's?)");
    }
  }

  void take(const RawRow& row, const EncodedRow& encoded) {
    const auto length = static_cast<int64>(encoded.ids.size());
    ++counts_.rows_read;
    counts_.tokens_read += length;
    counts_.invalid_utf8 += encoded.invalid_utf8;
    counts_.prompt_mismatches += encoded.prompt_mismatch;
    if (options_.completion_only_loss.value_or(false) && row.kind != RawRow::Kind::prompt_completion &&
        !encoded.has_labels)
      throw FileError("{}: completion_only_loss is true, but this row has no \"prompt\" and \"completion\"",
                      row.place());
    check_ids(row, encoded.ids, "token id", false);
    check_ids(row, encoded.labels, "label", true);

    if (options_.long_rows == LongRowRule::concatenate) return join(encoded);
    const int64 limit = options_.max_length.value_or(std::max<int64>(length, 1));
    if (length <= limit) return add(encoded, 0, length, false);
    if (!options_.max_length_given)
      throw ConfigError(
          "max_length: {} has {} tokens, more than the default of {}; set max_length, and long_rows to "
          "truncate or split what is longer",
          row.place(), length, limit);
    if (options_.long_rows == LongRowRule::split) {
      ++counts_.split_rows;
      ++counts_.reasons[kSplit];
      for (int64 begin = 0; begin < length; begin += limit) add(encoded, begin, std::min(limit, length - begin), false);
      return;
    }
    ++counts_.truncated_rows;
    ++counts_.reasons[kTruncated];
    counts_.dropped_tokens += length - limit;
    add(encoded, 0, limit, true);
  }

  void join(const EncodedRow& encoded) {
    if (encoded.empty) return drop(static_cast<int64>(encoded.ids.size()), kEmpty);
    ++counts_.joined_texts;
    labels_ = encoded.has_labels ? encoded.labels : encoded.ids;
    if (!encoded.has_labels) std::fill_n(labels_.begin(), encoded.first_label, kNoLabel);
    if (!joiner_.append(encoded.ids, labels_)) return;
    ++counts_.split_rows;
    ++counts_.reasons[kContinued];
  }

  void drop(int64 tokens, const char* reason) {
    ++counts_.dropped_rows;
    counts_.dropped_tokens += tokens;
    ++counts_.reasons[reason];
  }

  // A row of joined ones.
  void add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    if (count_targets(labels) > 0) return dataset_.add(ids, labels);
    drop(static_cast<int64>(ids.size()), ids.size() < 2 ? kTooShort : kUnlabelled);
  }

  // Tokens [begin, begin + count) of a row as a row of their own, unless nothing in it is a target.
  void add(const EncodedRow& encoded, int64 begin, int64 count, bool cut) {
    const auto at = static_cast<std::size_t>(begin), n = static_cast<std::size_t>(count);
    const std::span ids = std::span(encoded.ids).subspan(at, n);
    const int64 first_label = std::clamp<int64>(encoded.first_label - begin, 0, count);
    std::span<const std::int32_t> labels;
    if (encoded.has_labels) labels = std::span(encoded.labels).subspan(at, n);
    const int64 targets = encoded.has_labels ? count_targets(labels) : count - std::max<int64>(1, first_label);
    if (targets <= 0) {
      drop(count, count < 2 ? kTooShort : cut ? kUnlabelledCut : kUnlabelled);
    } else if (encoded.has_labels) {
      dataset_.add(ids, labels);
    } else {
      dataset_.add(ids, first_label);
    }
  }

  const std::string& text_field_;
  const TextEncoder& encoder_;
  const PrepareOptions& options_;
  PrepareCounts& counts_;
  PreparedDataset dataset_;
  RowJoiner joiner_;                  // long_rows: concatenate
  std::vector<std::int32_t> labels_;  // of the row being joined
};

int64 bytes_of(const RawRow& row) {
  return static_cast<int64>(row.text.size() + row.completion.size() + 4 * row.input_ids.size() + 4 * row.labels.size());
}

// Names and members of the counts in JSON.
constexpr std::array<std::pair<const char*, int64 PrepareCounts::*>, 10> kCounts{{
    {"rows_read", &PrepareCounts::rows_read},
    {"tokens_read", &PrepareCounts::tokens_read},
    {"dropped_rows", &PrepareCounts::dropped_rows},
    {"dropped_tokens", &PrepareCounts::dropped_tokens},
    {"truncated_rows", &PrepareCounts::truncated_rows},
    {"split_rows", &PrepareCounts::split_rows},
    {"joined_texts", &PrepareCounts::joined_texts},
    {"joined_rows", &PrepareCounts::joined_rows},
    {"invalid_utf8", &PrepareCounts::invalid_utf8},
    {"prompt_mismatches", &PrepareCounts::prompt_mismatches},
}};

}  // namespace

std::string describe(const PrepareCounts& counts) {
  std::vector<std::string> parts;
  if (counts.joined_texts > 0)
    parts.push_back(
        fmt::format("joined {} texts into {} rows (positions and attention run across them; {} lie in several "
                    "rows)",
                    counts.joined_texts, counts.joined_rows, counts.split_rows));
  else if (counts.split_rows > 0)
    parts.push_back(fmt::format("split {} rows at max_length", counts.split_rows));
  if (counts.truncated_rows > 0)
    parts.push_back(fmt::format("truncated {} rows at max_length (long_rows: split or concatenate keeps the rest)",
                                counts.truncated_rows));
  if (counts.dropped_rows == 0 && counts.dropped_tokens > 0)
    parts.push_back(fmt::format("dropped {} tokens", counts.dropped_tokens));
  if (counts.dropped_rows > 0) {
    std::vector<std::string> reasons;
    for (const auto& [reason, rows] : counts.reasons)
      if (reason != kSplit && reason != kTruncated && reason != kContinued)
        reasons.push_back(fmt::format("{}: {}", reason, rows));
    parts.push_back(fmt::format("dropped {} rows and {} tokens{}", counts.dropped_rows, counts.dropped_tokens,
                                reasons.empty() ? "" : fmt::format(" ({})", fmt::join(reasons, "; "))));
  }
  if (counts.invalid_utf8 > 0)
    parts.push_back(fmt::format("replaced {} invalid UTF-8 sequences by U+FFFD", counts.invalid_utf8));
  if (counts.prompt_mismatches > 0)
    parts.push_back(fmt::format("{} prompts end inside a token, which counts as completion", counts.prompt_mismatches));
  return fmt::format("{}", fmt::join(parts, ", "));
}

nlohmann::json counts_to_json(const PrepareCounts& counts) {
  nlohmann::json json;
  for (const auto& [name, member] : kCounts) json[name] = counts.*member;
  json["reasons"] = counts.reasons;
  return json;
}

PrepareCounts counts_from_json(const nlohmann::json& json, const std::string& where) {
  using Type = nlohmann::json::value_t;
  PrepareCounts counts;
  for (const auto& [name, member] : kCounts)
    counts.*member = require(json, name, Type::number_unsigned, where).get<int64>();
  for (const auto& [reason, rows] : require(json, "reasons", Type::object, where).items()) {
    if (!rows.is_number_integer()) throw FileError("{}: reasons: \"{}\" is no count", where, printable(reason));
    counts.reasons[reason] = rows.get<int64>();
  }
  return counts;
}

PreparedDataset prepare_dataset(const DatasetSpec& spec, const TextEncoder& encoder, const PrepareOptions& options,
                                PrepareCounts& counts) {
  check(options.vocab_size > 0, "a vocabulary of {}", options.vocab_size);
  check(!options.max_length || *options.max_length > 0, "max_length {}", options.max_length.value_or(0));
  counts = {};
  DatasetReader reader(spec);
  Preparation preparation(spec.text_field, encoder, options, counts);
  std::vector<RawRow> group;
  int64 bytes = 0;
  RawRow row;
  const auto next = [&] {
    try {
      return reader.next_unparsed(row);
    } catch (...) {
      preparation.encode_group(group);  // a fault in a row before this one is named first
      throw;
    }
  };
  while (next()) {
    bytes += bytes_of(row);
    group.push_back(std::exchange(row, {}));
    if (static_cast<int64>(group.size()) < kGroupRows && bytes < kGroupBytes) continue;
    preparation.encode_group(group);
    bytes = 0;
  }
  preparation.encode_group(group);
  return preparation.finish(spec);
}

}  // namespace megatoken
