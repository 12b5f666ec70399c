#include "spec/config_scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace megatoken {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// YAML's words come in three cases: yes, Yes, YES.
bool is_word(std::string_view text, std::string_view word) {
  if (lower(text) != word) return false;
  const bool all_upper = std::none_of(text.begin(), text.end(), [](unsigned char c) { return std::islower(c); });
  const bool rest_lower = std::none_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::isupper(c); });
  return all_upper || rest_lower;
}

// The digits of a number: underscores may stand between them (1_048_576), a plus in front.
std::string digits_of(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i - 1]));
    if (text[i] == '_' && between) continue;
    if (text[i] == '+' && i == 0) continue;
    result += text[i];
  }
  return result;
}

template <typename T>
std::optional<T> parse_whole(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

nlohmann::ordered_json resolve_scalar(std::string_view text) {
  if (text.empty() || text == "~" || is_word(text, "null")) return nullptr;
  for (const std::string_view word : {"true", "yes", "on"})
    if (is_word(text, word)) return true;
  for (const std::string_view word : {"false", "no", "off"})
    if (is_word(text, word)) return false;

  const std::string digits = digits_of(text);
  const bool numeric = !digits.empty() && digits.find_first_not_of("0123456789+-.eE") == std::string::npos &&
                       digits.find_first_of("0123456789") != std::string::npos;
  if (!numeric) return std::string(text);
  const std::string_view magnitude = std::string_view(digits).substr(digits[0] == '-' ? 1 : 0);
  const bool leading_zero =
      magnitude.size() > 1 && magnitude[0] == '0' && std::isdigit(static_cast<unsigned char>(magnitude[1]));
  if (digits.find_first_of(".eE") == std::string::npos) {
    if (leading_zero) return std::string(text);  // octal or not: YAML versions disagree
    if (const auto value = parse_whole<int64>(digits)) return *value;
    return std::string(text);
  }
  if (const auto value = parse_whole<double>(digits); value && std::isfinite(*value)) return *value;
  return std::string(text);
}

std::optional<int64> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1.0},    {"b", 1.0},      {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
      {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40}};
  const auto end_of_number = std::min(text.find_first_not_of("0123456789._"), text.size());
  std::string_view unit = text.substr(end_of_number);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const auto value = parse_whole<double>(digits_of(text.substr(0, end_of_number)));
  if (!value) return std::nullopt;
  for (const auto& [name, factor] : kUnits) {
    if (lower(unit) != name) continue;
    const double bytes = std::round(*value * factor);
    if (!(bytes >= 1 && bytes < 0x1p60)) return std::nullopt;
    return static_cast<int64>(bytes);
  }
  return std::nullopt;
}

std::optional<bool> parse_flag(std::string_view text) {
  const std::string word = lower(text);
  for (const std::string_view yes : {"yes", "true", "t", "y", "1", "on"})
    if (word == yes) return true;
  for (const std::string_view no : {"no", "false", "f", "n", "0", "off"})
    if (word == no) return false;
  return std::nullopt;
}

bool is_utf8(std::string_view text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string one_line(std::string_view text, std::size_t most) {
  std::string result;
  for (const unsigned char c : text.substr(0, most)) {
    if (c < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", c);
    else
      result += static_cast<char>(c);
  }
  return text.size() > most ? result + "..." : result;
}

}  // namespace megatoken
