// The groups on GPUs: thread ranks that share one, and NCCL with as many ranks as there are GPUs.
#include <gmock/gmock.h>

#include <cstring>

#include "comm/device_group.h"
#include "comm/group_conformance.h"
#include "comm/group_traffic.h"
#include "comm/nccl_group.h"
#include "comm/run_ranks.h"
#include "comm/staging_group.h"

namespace megatoken {
namespace {

void run_staged(std::shared_ptr<Group> group, Device& device, const std::function<void(Group&, Stream&)>& body) {
  const auto stream = device.create_stream(StreamMode::own_thread);
  StagingGroup staging(std::move(group), device);
  stream->submit([&](Stream& on) { body(staging, on); });
  stream->synchronize();
}

std::shared_ptr<Group> borrow(Group& group) {
  return {&group, [](Group*) {}};
}

void run_threads(int64 size, const std::function<void(Group&, Stream&)>& body) {
  run_ranks(size, [&](Group& world) {
    const auto device = create_cuda_device(0);
    const auto group = create_device_group(world.split(0), *device);
    run_staged(group, *device, body);
  });
}

// Threads dealt to two GPUs: peers' memory is reached by copies.
void run_on_two(int64 size, const std::function<void(Group&, Stream&)>& body) {
  run_ranks(size, [&](Group& world) {
    const auto device = create_cuda_device(static_cast<int>(world.rank() % 2));
    run_staged(borrow(world), *device, body);
  });
}

void run_nccl(int64 size, const std::function<void(Group&, Stream&)>& body) {
  run_ranks(size, [&](Group& world) {
    const auto device = create_cuda_device(static_cast<int>(world.rank()));
    run_staged(create_nccl_group(borrow(world), *device), *device, body);
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, GroupConformance,
                         testing::Values(GroupImplementation{"threads", 1, run_threads, true, 1},
                                         GroupImplementation{"threads", 2, run_threads, true, 1},
                                         GroupImplementation{"threads", 5, run_threads, true, 1},
                                         GroupImplementation{"two", 3, run_on_two, true, 2},
                                         GroupImplementation{"nccl", 1, run_nccl, true, 1},
                                         GroupImplementation{"nccl", 2, run_nccl, true, 2},
                                         GroupImplementation{"nccl", 4, run_nccl, false, 4},
                                         GroupImplementation{"nccl", 8, run_nccl, false, 8}),
                         [](const testing::TestParamInfo<GroupImplementation>& i) {
                           return fmt::format("{}{}", i.param.name, i.param.size);
                         });

class CudaGroups : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaGroups, TrafficOfThreadsOnOneGpu) {
  for (const int64 size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    for (int repeat = 0; repeat < 5; ++repeat)
      run_ranks(size, [](Group& world) {
        const auto device = create_cuda_device(0);
        run_traffic(world, *device);
        world.barrier();
      });
  }
}

TEST_F(CudaGroups, TrafficOfNccl) {
  for (int64 size = 1; size <= cuda_device_count(); size *= 2) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    run_ranks(size, [size](Group& world) {
      const auto device = create_cuda_device(static_cast<int>(world.rank()));
      const auto group = create_nccl_group(borrow(world), *device);
      run_traffic(*group, *device, size <= 2);
      world.barrier();
    });
  }
}

TEST_F(CudaGroups, GpusOfTheirOwnUseNccl) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "2 GPUs are needed";
  run_ranks(2, [](Group& world) {
    const auto device = create_cuda_device(static_cast<int>(world.rank()));
    const auto host = world.split(0);
    const auto group = create_device_group(host, *device);
    EXPECT_NE(group, host);
    EXPECT_EQ(group->size(), 2);
  });
}

// A rank that never comes leaves a kernel waiting on the other GPU: the abort ends it.
TEST_F(CudaGroups, AnAbortEndsNcclsKernels) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "2 GPUs are needed";
  EXPECT_THAT(
      [] {
        run_ranks(2, [](Group& world) {
          const auto device = create_cuda_device(static_cast<int>(world.rank()));
          const auto stream = device->create_stream(StreamMode::own_thread);
          const Memory memory = device->allocate(1 << 20, "values");
          const auto group = create_nccl_group(borrow(world), *device);
          world.barrier();
          if (world.rank() == 1) throw FileError("rank 1 has lost its file");
          stream->submit([&](Stream& s) { group->all_reduce(s, reinterpret_cast<float*>(memory.data()), 1 << 18); });
          try {
            stream->synchronize();
          } catch (const Error&) {
          }
          for (;;) world.barrier();
        });
      },
      testing::ThrowsMessage<FileError>(testing::HasSubstr("rank 1 has lost its file")));
}

TEST_F(CudaGroups, AnAbortedNcclGroupSaysWhy) {
  const auto device = create_cuda_device(0);
  const auto stream = device->create_stream(StreamMode::own_thread);
  const Memory memory = device->allocate(1024, "values");
  const auto group = create_nccl_group(create_self_group(), *device);
  group->abort("disk full");
  stream->submit([&](Stream& s) { group->all_reduce(s, reinterpret_cast<float*>(memory.data()), 256); });
  EXPECT_THAT([&] { stream->synchronize(); }, testing::ThrowsMessage<AbortedError>(testing::StrEq("disk full")));
}

// Bit for bit the CPU's sum: aligned and not, in place, more terms than are unrolled.
TEST_F(CudaGroups, SumsEqualTheCpus) {
  const auto gpu = create_cuda_device(0);
  const auto cpu = create_cpu_device(1);
  const auto stream = gpu->create_stream(StreamMode::own_thread);
  const auto reference = cpu->create_stream(StreamMode::in_order_inline);
  for (const int64 num_terms : {1, 2, 8, 9, 33, 256}) {
    for (const auto& [count, offset, in_place] : std::vector<std::tuple<int64, int64, bool>>{
             {1, 0, false}, {1024, 0, false}, {1024, 1, false}, {4099, 0, true}, {300'000, 0, true}, {0, 0, false}}) {
      const int64 stride = (count + offset + 3) / 4 * 4;
      const auto values = test_values(3, num_terms * stride);
      std::vector<float> want(static_cast<std::size_t>(count)), got(want);
      const Memory memory = gpu->allocate((num_terms + 1) * stride * 4 + 4, "terms");
      auto* const base = reinterpret_cast<float*>(memory.data());
      std::vector<const float*> here, there;
      for (int64 t = 0; t < num_terms; ++t) {
        here.push_back(values.data() + t * stride + offset);
        there.push_back(base + t * stride + offset);
      }
      float* const out = in_place ? base + (num_terms / 2) * stride + offset : base + num_terms * stride + offset;
      stream->submit([&, n = count](Stream& s) {
        s.copy(base, values.data(), num_terms * stride * 4);
        s.sum(there, out, n);
        s.copy(got.data(), out, n * 4);
      });
      stream->synchronize();
      reference->submit([&, n = count](Stream& s) { s.sum(here, want.data(), n); });
      reference->synchronize();
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0)
          << num_terms << " terms of " << count << " elements, offset " << offset;
    }
  }
}

}  // namespace
}  // namespace megatoken
