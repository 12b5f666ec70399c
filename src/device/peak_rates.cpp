#include "device/peak_rates.h"

namespace megatoken {
namespace {

struct PeakRate {
  std::string_view name;  // whole words of the driver's name; the first row that matches counts
  double tflops;
};

// NVIDIA's data sheets: dense, bf16 inputs, float32 sums. The cards with tensor cores of half rate for float32 sums
// (GeForce) are listed at that rate.
constexpr PeakRate kRates[] = {
    {"B300", 2250},       {"GB200", 2500},     {"B200", 2250},
    {"H200 NVL", 835.5},  {"H200", 989.4},     {"GH200", 989.4},
    {"H100 NVL", 835.5},  {"H100 PCIe", 756},  {"H100", 989.4},
    {"H800", 989.4},      {"H20", 148},        {"A100", 312},
    {"A800", 312},        {"A40", 149.7},      {"A10G", 70},
    {"A10", 125},         {"A30", 165},        {"L40S", 362},
    {"L40", 181},         {"L4", 121},         {"RTX 6000 Ada", 364.2},
    {"RTX A6000", 154.8}, {"RTX 5090", 209.5}, {"RTX 4090", 165.2},
    {"RTX 3090", 71},
};

bool letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// `words` stand in `name` with no letter or digit before or behind them: "A100" is in "A100-SXM4", not in "RTX A1000".
bool contains_words(std::string_view name, std::string_view words) {
  for (auto at = name.find(words); at != std::string_view::npos; at = name.find(words, at + 1)) {
    const auto end = at + words.size();
    if ((at == 0 || !letter_or_digit(name[at - 1])) && (end == name.size() || !letter_or_digit(name[end]))) return true;
  }
  return false;
}

}  // namespace

std::optional<double> peak_bf16_flops(std::string_view device_name) {
  if (contains_words(device_name, "Laptop")) return std::nullopt;  // the desktop card's name, another chip
  for (const PeakRate& rate : kRates)
    if (contains_words(device_name, rate.name)) return rate.tflops * 1e12;
  return std::nullopt;
}

}  // namespace megatoken
