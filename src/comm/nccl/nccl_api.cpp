#include "comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "device/cuda/libraries.h"

namespace megatoken {
namespace {

// Communicators that don't block and can be aborted while they are made: 2.14; and while they are ended: 2.18.
constexpr int kOldest = 21800;

template <typename Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw FitError("NCCL (libnccl.so.2) has no {}: install NCCL 2.18 or later", name);
}

NcclApi open() {
  // Sums in the NVLink switch add in an order of their own, and their buffers take device memory that no plan counts.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  void* const library = nccl_library();
  NcclApi api{};
  load(library, "ncclGetVersion", api.get_version);
  int version = 0;
  if (api.get_version(&version) != ncclSuccess || version < kOldest)
    throw FitError("NCCL {}.{} is too old: install NCCL 2.18 or later", version / 10000, version / 100 % 100);
  load(library, "ncclGetUniqueId", api.get_unique_id);
  load(library, "ncclCommInitRankConfig", api.comm_init_rank_config);
  load(library, "ncclCommFinalize", api.comm_finalize);
  load(library, "ncclCommDestroy", api.comm_destroy);
  load(library, "ncclCommAbort", api.comm_abort);
  load(library, "ncclCommGetAsyncError", api.comm_get_async_error);
  load(library, "ncclGetErrorString", api.get_error_string);
  load(library, "ncclGetLastError", api.get_last_error);
  load(library, "ncclAllGather", api.all_gather);
  load(library, "ncclReduceScatter", api.reduce_scatter);
  load(library, "ncclAllReduce", api.all_reduce);
  load(library, "ncclBroadcast", api.broadcast);
  load(library, "ncclSend", api.send);
  load(library, "ncclRecv", api.recv);
  load(library, "ncclGroupStart", api.group_start);
  load(library, "ncclGroupEnd", api.group_end);
  return api;
}

}  // namespace

const NcclApi& nccl() {
  static const NcclApi api = open();
  return api;
}

std::string describe(ncclResult_t result) {
  std::string text = nccl().get_error_string(result);
  const char* const detail = nccl().get_last_error(nullptr);
  if (detail != nullptr && *detail != '\0') text += fmt::format(": {}", detail);
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

}  // namespace megatoken
