// Names as NVIDIA's driver gives them.
#include "device/peak_rates.h"

#include <gtest/gtest.h>

namespace megatoken {
namespace {

TEST(PeakRates, AreThoseOfTheVeryCard) {
  const std::pair<const char*, double> known[] = {
      {"NVIDIA H200", 989.4},           {"NVIDIA H200 NVL", 835.5},       {"NVIDIA H100 80GB HBM3", 989.4},
      {"NVIDIA H100 PCIe", 756},        {"NVIDIA GH200 480GB", 989.4},    {"NVIDIA H20", 148},
      {"NVIDIA A100-SXM4-80GB", 312},   {"NVIDIA A10", 125},              {"NVIDIA A10G", 70},
      {"NVIDIA A40", 149.7},            {"NVIDIA L4", 121},               {"NVIDIA L40S", 362},
      {"NVIDIA L40", 181},              {"NVIDIA B200", 2250},            {"NVIDIA GB200", 2500},
      {"NVIDIA RTX A6000", 154.8},      {"NVIDIA GeForce RTX 4090", 165.2}};
  for (const auto& [name, tflops] : known) {
    const auto rate = peak_bf16_flops(name);
    ASSERT_TRUE(rate.has_value()) << name;
    EXPECT_DOUBLE_EQ(*rate, tflops * 1e12) << name;
  }
}

TEST(PeakRates, OtherCardsHaveNone) {
  for (const char* name : {"NVIDIA RTX A4000", "NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "Tesla T4", "NVIDIA L400", ""})
    EXPECT_FALSE(peak_bf16_flops(name).has_value()) << name;
}

}  // namespace
}  // namespace megatoken
