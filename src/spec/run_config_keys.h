// The one table of a run's keys: parsing, --help-keys, docs/configuration.md and completion are made from it.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace megatoken {

struct RunConfig;

enum class KeyClass {
  honoured,  // read into RunConfig
  accepted,  // no effect on the result; one printed line
  refused,   // would change numbers or artefacts and isn't done; fine at its harmless values
};
enum class KeyGroup { model, data, training, saving, parallel, planner };
enum class ValueType {
  text,    // the raw text of a command-line value
  choice,  // text out of a few
  flag,    // true or false
  integer,
  number,
  size,       // bytes: 24GiB, 80GB, 1.5TiB, or a plain number
  scalar,     // a number or a word
  list,       // of scalars; one scalar stands for a list of one
  map,        // free keys
  container,  // a dictionary whose keys are rows of this table
  any,        // accepted and refused keys
};

// A value on its way into RunConfig: typed access with errors that name place, key and what was expected.
class KeyValue {
 public:
  using Json = nlohmann::ordered_json;
  KeyValue(std::string place, const Json& json) : place_(std::move(place)), json_(json) {}

  const Json& json() const { return json_; }
  bool is_null() const { return json_.is_null(); }

  bool flag() const;
  int64 integer(int64 smallest, int64 largest = INT64_MAX) const;
  double number() const;
  double number(double smallest, double largest) const;  // both included
  std::string text() const;                              // "" for null
  int64 bytes() const;
  std::vector<std::string> texts() const;  // of a list or one scalar; "" and null: none
  // A whole number from 0 on, "all" (0) or "auto" (unset).
  std::optional<int64> automatic_or_number() const;

  template <typename E>
  E choice(std::initializer_list<std::pair<std::string_view, E>> choices) const {
    const std::string word = choice_word();
    std::string names;
    for (const auto& [name, value] : choices) {
      if (word == name) return value;
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    expected("one of " + names);
  }

  // Throws ConfigError "PLACE must be WHAT, not VALUE".
  [[noreturn]] void expected(std::string_view what) const;
  // Throws ConfigError "PLACE: MESSAGE".
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void fail_with(const std::string& message) const;
  std::string choice_word() const;  // false is "no" (YAML reads no as false)

  std::string place_;  // "run.yaml:12: learning_rate"
  const Json& json_;
};

struct KeyInfo {
  using Setter = void (*)(RunConfig&, const KeyValue&);

  std::string_view name;  // dotted for a row inside a container
  KeyClass use = KeyClass::honoured;
  ValueType type = ValueType::any;
  std::string_view default_value = {};  // as it would be written; empty: not set
  std::string_view help = {};           // meaning; why it has no effect; why it is refused
  Setter set = nullptr;                 // of honoured keys
  bool nullable = false;
  std::string_view aliases = {};   // separated by spaces
  std::string_view harmless = {};  // refused keys: JSON values that are fine, separated by '|'; null always is
  KeyGroup group = KeyGroup::model;

  constexpr KeyInfo or_null() const {
    KeyInfo copy = *this;
    copy.nullable = true;
    return copy;
  }
  constexpr KeyInfo also(std::string_view names) const {
    KeyInfo copy = *this;
    copy.aliases = names;
    return copy;
  }
};

constexpr KeyInfo honoured(std::string_view name, ValueType type, std::string_view default_value, std::string_view help,
                           KeyInfo::Setter set) {
  return {.name = name, .type = type, .default_value = default_value, .help = help, .set = set};
}
constexpr KeyInfo accepted(std::string_view name, std::string_view why) {
  return {.name = name, .use = KeyClass::accepted, .help = why, .nullable = true};
}
constexpr KeyInfo refused(std::string_view name, std::string_view harmless, std::string_view why) {
  return {.name = name, .use = KeyClass::refused, .help = why, .nullable = true, .harmless = harmless};
}
constexpr KeyInfo container_row(std::string_view name, std::string_view help) {
  return {.name = name, .type = ValueType::container, .help = help, .nullable = true};
}

// Every row, in the order in which setters run and the documentation shows them.
std::span<const KeyInfo> run_config_keys();

// The row of a key as a user writes it (any case of - and _, aliases, dots); nullptr when there is none.
// A dotted key inside a free map ("lr_scheduler_kwargs.num_cycles") finds the map's row.
const KeyInfo* find_key(std::string_view name);

// "fsdp_config.offload_params" -> "fsdp_offload_params": hyphens, aliases and container prefixes resolved; the name
// itself, with underscores, when no row is known.
std::string canonical_key(std::string_view name);

// The closest known key, or "" when none is close. Inside a container its own keys are looked at.
std::string nearest_key(std::string_view name);

// The rows of one source file each; run_config_keys() joins them.
std::span<const KeyInfo> model_key_rows();
std::span<const KeyInfo> data_key_rows();
std::span<const KeyInfo> training_key_rows();
std::span<const KeyInfo> saving_key_rows();
std::span<const KeyInfo> parallel_key_rows();
std::span<const KeyInfo> planner_key_rows();

// What activation_offloading means, for the rows of several files.
void offload_activations(RunConfig& config);

}  // namespace megatoken
