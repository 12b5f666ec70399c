#include <gtest/gtest.h>

#include <vector>

#include "comm/group.h"

namespace megatoken {
namespace {

TEST(LoopbackGroup, CopiesAsManyBytesAsTheOthersWouldSend) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamMode::in_order_inline);
  const auto group = create_loopback_group(1, 3);
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 3);
  const std::vector<float> own{1, 2};
  std::vector<float> all(6, 0), part(2, 0), received(2, 0);
  stream->submit([&](Stream& s) {
    group->all_gather(s, own.data(), all.data(), 8);
    const std::vector<float> six{10, 11, 20, 21, 30, 31};
    group->reduce_scatter(s, six.data(), part.data(), 2);
    group->send_receive(s, own.data(), 2, received.data(), 0, 8);
  });
  stream->synchronize();
  EXPECT_EQ(all, (std::vector<float>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(part, (std::vector<float>{20, 21}));
  EXPECT_EQ(received, own);
  EXPECT_EQ(group->bytes_sent(), 16 + 16 + 8);
  EXPECT_EQ(group->all_gather_host("x").size(), 3u);
}

}  // namespace
}  // namespace megatoken
