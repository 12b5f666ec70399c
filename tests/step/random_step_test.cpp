// Random programs: collapsed counts equal flat ones, packed plans hold, and execution equals the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/arena.h"
#include "step/async_device.h"
#include "step/counting_context.h"
#include "step/executing_context.h"
#include "step/random_program.h"
#include "step/reference_context.h"

namespace megatoken {
namespace {

using testing_step::RandomProgram;
using testing_step::ReferenceContext;
using Data = std::vector<std::int64_t>;

Data input() {
  Data data(RandomProgram::kInputRows * RandomProgram::kCols);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = testing_step::mix(static_cast<std::int64_t>(i));
  return data;
}

CountedStep count(RandomProgram& program, bool collapse, double scale = 1) {
  return count_step([&](StepContext& ctx) { program.run(ctx, nullptr, nullptr, scale); }, collapse);
}

void expect_equal(const WorkTotal& a, const WorkTotal& b) {
  EXPECT_EQ(a.ops, b.ops);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes, b.bytes);
}

// Thread sanitizer makes all of this thirty times slower.
#ifdef __SANITIZE_THREAD__
constexpr unsigned kPrograms = 25;
#else
constexpr unsigned kPrograms = 150;
#endif

TEST(RandomStep, CollapsedCountsEqualFlatOnes) {
  for (unsigned seed = 0; seed < 2 * kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram program(seed);
    const CountedStep flat = count(program, false);
    const CountedStep collapsed = count(program, true);
    const WorkTotals once = total_work(collapsed), all = total_work(flat);
    for (std::size_t k = 0; k < kNumWorkKinds; ++k) expect_equal(once.by_kind[k], all.by_kind[k]);
    for (std::size_t s = 0; s < kNumStreams; ++s) expect_equal(once.by_stream[s], all.by_stream[s]);
    ASSERT_EQ(once.by_name.size(), all.by_name.size());
    for (const auto& [name, total] : all.by_name) expect_equal(once.by_name.at(name), total);
    EXPECT_EQ(collapsed.peak_live_bytes, flat.peak_live_bytes);
    EXPECT_LE(collapsed.events.size(), flat.events.size() + 200);
    const Plan plan = pack(collapsed);
    EXPECT_EQ(plan.misfit(flat), std::nullopt);
    for (const Place place : {Place::device, Place::host}) EXPECT_GE(plan.arena_bytes(place), flat.live_bytes(place));
  }
}

void expect_execution_equals_the_reference(Device& device) {
  Data in = input();
  const std::unique_ptr<Device> cpu = create_cpu_device(1);
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    RandomProgram program(seed);
    const auto plan = std::make_shared<Plan>(pack(count(program, true)));
    Arena arena(device, plan->arena_bytes(), nullptr, {.poison = seed % 2 == 0});
    ExecutingContext executing(device, arena, plan);
    for (const double scale : {1.0, 0.5}) {
      Data expected(RandomProgram::kResultCols, 7);
      ReferenceContext reference(*cpu);
      program.run(reference, in.data(), expected.data(), scale);
      reference.finish();

      executing.use_plan(std::make_shared<Plan>(adapt(*plan, count(program, true, scale), plan->arena_bytes())));
      Data result(RandomProgram::kResultCols, 7);
      program.run(executing, in.data(), result.data(), scale);
      executing.finish();
      EXPECT_EQ(result, expected) << "scale " << scale;
    }
  }
}

TEST(RandomStep, ExecutionEqualsTheReference) { expect_execution_equals_the_reference(*create_cpu_device(1)); }

TEST(RandomStep, ExecutionWithTheHostAheadOfComputeEqualsTheReference) {
  testing_step::AsyncDevice device;
  expect_execution_equals_the_reference(device);
}

}  // namespace
}  // namespace megatoken
