#include "data/row.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/dataset.h"
#include "io/file.h"
#include "io/json.h"

namespace megatoken {
namespace {

// What a row with input_ids may not have: each changes what is trained, and none is honoured.
constexpr std::array<std::string_view, 5> kRefusedWithIds{"completion_mask", "assistant_masks", "position_ids",
                                                          "seq_lengths", "token_type_ids"};
constexpr std::array<std::string_view, 3> kChatKeys{"messages", "conversations", "conversation"};
constexpr std::array<std::string_view, 2> kImageKeys{"images", "image"};

bool is_chat_key(std::string_view key) { return std::find(kChatKeys.begin(), kChatKeys.end(), key) != kChatKeys.end(); }

// A key's value as far as it matters: its type, and the content of texts and lists of integers.
struct Value {
  enum class Type { absent, text, integers, list, other };
  Type type = Type::absent;
  std::string text;
  std::vector<std::int32_t> integers;
  const char* type_name = "";
};

// Collects the wanted keys of one object and passes over the rest, whose nesting is bounded.
class RowEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RowEvents(const std::string& field) : text_field_(field) {}

  const std::string& error() const { return error_; }
  bool has(std::string_view key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }
  std::string chat_key;
  Value text_field, prompt, completion, input_ids, labels, attention_mask, chat;

  bool start_object(std::size_t) override {
    if (depth_ == 0) return ++depth_, true;
    return open("an object", Value::Type::other);
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return fail("a row must be an object, not a list");
    return open("a list", Value::Type::integers);
  }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    if (has(name)) return fail(fmt::format("key \"{}\" stands twice", printable(name)));
    keys_.push_back(name);
    current_ = name == text_field_        ? &text_field
               : name == "prompt"         ? &prompt
               : name == "completion"     ? &completion
               : name == "input_ids"      ? &input_ids
               : name == "labels"         ? &labels
               : name == "attention_mask" ? &attention_mask
               : is_chat_key(name)        ? &chat
                                          : nullptr;
    if (current_ == &chat) chat_key = name;
    return true;
  }
  bool string(std::string& text) override {
    if (!scalar("a text", Value::Type::text)) return false;
    if (depth_ == 1 && current_) current_->text = std::move(text);
    return true;
  }
  bool null() override {
    if (depth_ == 0) return fail("a row must be an object, not null");
    // A column that other rows of a table have: as if the key weren't there.
    if (depth_ == 1) {
      keys_.pop_back();
      current_ = nullptr;
      return true;
    }
    return scalar("null", Value::Type::other);
  }
  bool boolean(bool) override { return scalar("true or false", Value::Type::other); }
  bool number_integer(std::int64_t number) override { return integer(number); }
  bool number_unsigned(std::uint64_t number) override {
    return integer(static_cast<std::int64_t>(
        std::min<std::uint64_t>(number, std::uint64_t{std::numeric_limits<std::int64_t>::max()})));
  }
  bool number_float(double, const std::string&) override {
    return scalar("a number with a fraction", Value::Type::other);
  }
  bool binary(nlohmann::json::binary_t&) override { return fail("binary data"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return fail(json_error_text(error));
  }

 private:
  static constexpr int64 kMaxDepth = 64;

  bool fail(std::string text) {
    error_ = std::move(text);
    return false;
  }
  bool open(const char* type_name, Value::Type type) {
    if (depth_ == kMaxDepth) return fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (depth_ == 1 && current_) {
      current_->type = type;
      current_->type_name = type_name;
    } else if (depth_ == 2 && current_ && current_->type == Value::Type::integers) {
      current_->type = Value::Type::list;
    }
    ++depth_;
    return true;
  }
  bool scalar(const char* type_name, Value::Type type) {
    if (depth_ == 0) return fail(fmt::format("a row must be an object, not {}", type_name));
    if (depth_ == 1 && current_) {
      current_->type = type;
      current_->type_name = type_name;
    } else if (depth_ == 2 && current_ && current_->type == Value::Type::integers) {
      current_->type = Value::Type::list;
      current_->type_name = "a list with other things than integers";
    }
    return true;
  }
  bool integer(std::int64_t number) {
    if (depth_ != 2 || !current_ || current_->type != Value::Type::integers)
      return depth_ == 2 || scalar("a number", Value::Type::other);
    if (number < std::numeric_limits<std::int32_t>::min() || number > std::numeric_limits<std::int32_t>::max())
      return fail(fmt::format("\"{}\" has {}, which is no token id", printable(keys_.back()), number));
    current_->integers.push_back(static_cast<std::int32_t>(number));
    return true;
  }

  const std::string& text_field_;
  std::string error_;
  std::vector<std::string> keys_;
  Value* current_ = nullptr;  // of the key at depth 1
  int64 depth_ = 0;
};

[[noreturn]] void fault(const RawRow& row, const std::string& text) { throw FileError("{}: {}", row.place(), text); }

std::string take_text(const RawRow& row, std::string_view key, Value& value) {
  if (value.type == Value::Type::absent) fault(row, fmt::format("\"{}\" is missing", printable(key)));
  if (value.type != Value::Type::text)
    fault(row, fmt::format("\"{}\" must be a text, not {}{}", printable(key), value.type_name,
                           key == "prompt" || key == "completion" ? " (chat templates are not read yet)" : ""));
  return std::move(value.text);
}

std::vector<std::int32_t> take_integers(const RawRow& row, std::string_view key, Value& value) {
  if (value.type != Value::Type::integers)
    fault(row, fmt::format("\"{}\" must be a list of integers, not {}", printable(key), value.type_name));
  return std::move(value.integers);
}

void fill_ids(RowEvents& events, RawRow& row) {
  row.kind = RawRow::Kind::ids;
  row.input_ids = take_integers(row, "input_ids", events.input_ids);
  const auto lowest = std::min_element(row.input_ids.begin(), row.input_ids.end());
  if (lowest != row.input_ids.end() && *lowest < 0)
    fault(row, fmt::format("\"input_ids\" has {}, which is no token id", *lowest));
  for (const std::string_view key : kRefusedWithIds)
    if (events.has(key))
      fault(row, fmt::format(
                     "\"{}\" beside \"input_ids\" is not honoured; say what is trained with \"labels\" ({} for none)",
                     key, kNoLabel));
  if (events.attention_mask.type != Value::Type::absent) {
    const auto mask = take_integers(row, "attention_mask", events.attention_mask);
    if (mask.size() != row.input_ids.size())
      fault(row, fmt::format("\"attention_mask\" has {} entries for {} input_ids", mask.size(), row.input_ids.size()));
    if (std::any_of(mask.begin(), mask.end(), [](std::int32_t m) { return m != 1; }))
      fault(row, "\"attention_mask\" hides tokens, which is not honoured; leave padding out of the row");
  }
  row.has_labels = events.labels.type != Value::Type::absent;
  if (!row.has_labels) return;
  row.labels = take_integers(row, "labels", events.labels);
  if (row.labels.size() != row.input_ids.size())
    fault(row, fmt::format("\"labels\" has {} entries for {} input_ids", row.labels.size(), row.input_ids.size()));
  for (const std::int32_t label : row.labels)
    if (label < 0 && label != kNoLabel)
      fault(row, fmt::format("\"labels\" has {}, neither a token id nor {}", label, kNoLabel));
}

}  // namespace

std::string RawRow::place() const { return fmt::format("{}:{}", printable(file ? *file : "", 4096), line); }

void parse_json_row(std::string_view json, const std::string& text_field, RawRow& row) {
  row.text.clear();
  row.completion.clear();
  row.input_ids.clear();
  row.labels.clear();
  row.has_labels = false;
  // The parser would take a NUL for the end of its input.
  if (json.find('\0') != json.npos) fault(row, "a NUL byte, which JSON doesn't allow (write it as \\u0000)");
  RowEvents events(text_field);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) fault(row, events.error());

  if (events.has("input_ids")) return fill_ids(events, row);
  const bool prompt_alone = text_field == "prompt" && !events.has("completion");
  const bool prompt_completion = events.has("prompt") && !prompt_alone;
  const bool chat = events.chat.type == Value::Type::list || events.chat.type == Value::Type::integers;
  if (chat && !prompt_completion)
    fault(row, fmt::format("\"{}\": chat templates are not read yet; give \"prompt\" and \"completion\", or \"{}\"",
                           events.chat_key, printable(text_field)));
  for (const std::string_view key : kImageKeys)
    if (events.has(key)) fault(row, fmt::format("\"{}\": only text is trained", key));
  if (prompt_completion) {
    row.kind = RawRow::Kind::prompt_completion;
    row.text = take_text(row, "prompt", text_field == "prompt" ? events.text_field : events.prompt);
    row.completion = take_text(row, "completion", text_field == "completion" ? events.text_field : events.completion);
    return;
  }
  row.kind = RawRow::Kind::text;
  if (!events.has(text_field))
    fault(row, fmt::format("no \"{}\" (dataset_text_field), no \"prompt\" and \"completion\", no \"input_ids\"",
                           printable(text_field)));
  row.text = take_text(row, text_field, events.text_field);
}

void parse_row(const std::string& text_field, RawRow& row) {
  if (row.kind != RawRow::Kind::json) return;
  const std::string json = std::exchange(row.text, {});
  parse_json_row(json, text_field, row);
}

}  // namespace megatoken
