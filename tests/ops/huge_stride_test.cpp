// Offsets beyond 2^31 elements: every case of the op table again, on rows so far apart that the last lies past that.
// The memory is address space; only the rows are ever touched.
#include <sys/mman.h>

#include "ops/op_cases.h"

namespace megatoken {
namespace {

Memory reserve(int64 bytes) {
  void* p = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return Memory();
  return Memory(p, bytes, [bytes](void* at) { ::munmap(at, static_cast<std::size_t>(bytes)); });
}

// Every element of a column may lie on a page of its own: cases of many rows take too many pages.
std::vector<OpCase> small_cases() {
  std::vector<OpCase> chosen;
  for (OpCase& op : op_cases()) {
    if (op.name.find("3000x") == std::string::npos && op.name.find("2100x") == std::string::npos)
      chosen.push_back(std::move(op));
  }
  return chosen;
}

class HugeStride : public testing::TestWithParam<OpCase> {};

TEST_P(HugeStride, EqualsReference) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer's shadow has no room for this much address space";
#endif
  if (reserve(int64{200} << 30).data() == nullptr) GTEST_SKIP() << "no 200 GiB of address space here";
  const OpCase& op = GetParam();
  const auto device = create_cpu_device(kTestThreads);
  Rig rig(*device, cpu_op_table(), seed_of(op.name), Layout::huge, reserve);
  op.run(rig);
}

INSTANTIATE_TEST_SUITE_P(Cases, HugeStride, testing::ValuesIn(small_cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace megatoken
