#include "comm/nccl/communicator.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "comm/nccl/nccl_api.h"
#include "device/cuda/cuda_error.h"

namespace megatoken {
namespace {

constexpr std::chrono::minutes kMostToConnect(5);
constexpr std::chrono::seconds kMostToEnd(10), kMostForReason(5);
constexpr std::chrono::milliseconds kWatchEvery(100);

// Rank 0's id, or why it has none.
ncclUniqueId share_id(Group& host) {
  ncclUniqueId id{};
  std::string offer;
  if (host.rank() == 0) {
    const ncclResult_t result = nccl().get_unique_id(&id);
    offer =
        result == ncclSuccess ? std::string(id.internal, sizeof(id.internal)) : fmt::format("!{}", describe(result));
  }
  offer = host.all_gather_host(offer)[0];
  if (offer.size() != sizeof(id.internal))
    throw TrainError("NCCL on rank 0: {}; NCCL_DEBUG=INFO says more", offer.substr(1));
  std::memcpy(id.internal, offer.data(), sizeof(id.internal));
  return id;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Group> host, int device) : host_(std::move(host)), device_(device) {
  ncclUniqueId id = share_id(*host_);
  check_cuda(cudaSetDevice(device_), "selecting the device");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::unique_lock lock(state_->mutex);
  ncclResult_t result = nccl().comm_init_rank_config(&state_->comm, static_cast<int>(host_->size()), id,
                                                     static_cast<int>(host_->rank()), &config);
  bool settled = false;
  try {
    settled = settle(lock, result, Clock::now() + kMostToConnect);
  } catch (...) {
    abort_locked();
    throw;
  }
  if (!settled || result != ncclSuccess) {
    const std::string why = settled ? describe(result) : fmt::format("nothing within {} min", kMostToConnect.count());
    abort_locked();
    lock.unlock();
    await_reason(result);
    throw TrainError(
        "rank {} of {} can't reach the others' GPUs by NCCL: {}; NCCL_DEBUG=INFO says more, NCCL_SOCKET_IFNAME names "
        "the "
        "network interface",
        host_->rank(), host_->size(), why);
  }
  lock.unlock();
  cudaGetLastError();
  host_->abort_state()->listen(state_, [state = state_.get()] {
    { const std::lock_guard held(state->mutex); }  // the watcher between its check and its wait must not miss it
    state->changed.notify_all();
  });
  watcher_ = std::thread([this] { watch(); });
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  if (watcher_.joinable()) watcher_.join();
  std::unique_lock lock(state_->mutex);
  if (state_->comm == nullptr) return;
  cudaSetDevice(device_);
  try {
    ncclResult_t result = nccl().comm_finalize(state_->comm);
    if (settle(lock, result, Clock::now() + kMostToEnd) && result == ncclSuccess) {
      nccl().comm_destroy(state_->comm);
      state_->comm = nullptr;
    }
  } catch (const Error&) {  // aborted meanwhile
  }
  abort_locked();
}

void Communicator::abort_locked() const {
  if (state_->comm == nullptr) return;
  nccl().comm_abort(state_->comm);
  state_->comm = nullptr;
}

bool Communicator::settle(std::unique_lock<std::mutex>& lock, ncclResult_t& result, Clock::time_point deadline) const {
  for (int64 polls = 0; result == ncclInProgress; ++polls) {
    lock.unlock();
    // An operation is in its stream after some 50 us; a communicator takes seconds to make.
    if (polls < 200)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(polls < 2000 ? 50 : 1000));
    lock.lock();
    host_->abort_state()->check();
    if (Clock::now() > deadline) return false;
    const ncclResult_t asked = nccl().comm_get_async_error(state_->comm, &result);
    if (asked != ncclSuccess) result = asked;
  }
  return true;
}

void Communicator::call(const char* what, const std::function<ncclResult_t(ncclComm_t)>& enqueue) {
  std::unique_lock lock(state_->mutex);
  host_->abort_state()->check();
  check(state_->comm != nullptr, "{} on an NCCL communicator that has ended", what);
  ncclResult_t result = enqueue(state_->comm);
  const bool settled = settle(lock, result, Clock::now() + kMostToConnect);
  lock.unlock();
  if (!settled || result != ncclSuccess) fail(what, result);
  cudaGetLastError();  // what NCCL tried in vain is no error of the next op's
}

void Communicator::await_reason(ncclResult_t result) const {
  if (result != ncclRemoteError && result != ncclSystemError) return;
  const auto deadline = Clock::now() + kMostForReason;
  while (!host_->abort_state()->aborted() && Clock::now() < deadline) std::this_thread::sleep_for(kWatchEvery);
  host_->abort_state()->check();
}

std::string Communicator::reason_of(const char* what, ncclResult_t result) const {
  return fmt::format("NCCL on rank {} of {}: {}: {}; NCCL_DEBUG=INFO says more", host_->rank(), host_->size(), what,
                     describe(result));
}

void Communicator::fail(const char* what, ncclResult_t result) const {
  const std::string reason = reason_of(what, result);
  await_reason(result);
  throw TrainError(reason);
}

void Communicator::watch() const {
  cudaSetDevice(device_);
  AbortState& aborts = *host_->abort_state();
  std::unique_lock lock(state_->mutex);
  for (;;) {
    state_->changed.wait_for(lock, kWatchEvery, [&] { return state_->ending || aborts.aborted(); });
    if (aborts.aborted()) return abort_locked();
    if (state_->ending) return;
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = nccl().comm_get_async_error(state_->comm, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess || result == ncclInProgress) continue;
    lock.unlock();  // abort() comes back to the listener, which takes it
    const std::string reason = reason_of("noticed behind the operations", result);
    try {
      await_reason(result);
      host_->abort(reason);
    } catch (const AbortedError&) {
    }
    lock.lock();
  }
}

}  // namespace megatoken
