#include "comm/rendezvous/settings.h"

#include <map>
#include <set>

namespace megatoken {
namespace {

constexpr int kNamed = 5;

std::string shortened(const std::string& value) {
  constexpr std::size_t kMost = 80;
  return value.size() <= kMost ? value : value.substr(0, kMost) + "...";
}

}  // namespace

std::string compare_settings(const Settings& low_settings, const Settings& high_settings, const std::string& low,
                             const std::string& high) {
  const std::map<std::string, std::string> a(low_settings.begin(), low_settings.end());
  const std::map<std::string, std::string> b(high_settings.begin(), high_settings.end());
  std::set<std::string> keys;
  for (const auto& [key, value] : a) keys.insert(key);
  for (const auto& [key, value] : b) keys.insert(key);
  const auto value_of = [](const auto& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? "not given" : shortened(found->second);
  };
  std::string text;
  int differing = 0;
  for (const std::string& key : keys) {
    if (a.contains(key) && b.contains(key) && a.at(key) == b.at(key)) continue;
    if (++differing > kNamed) continue;
    text += fmt::format("{}{}: {} on {}, {} on {}", differing == 1 ? "" : "; ", key, value_of(a, key), low,
                        value_of(b, key), high);
  }
  if (differing > kNamed) text += fmt::format("; and {} more", differing - kNamed);
  return text;
}

}  // namespace megatoken
