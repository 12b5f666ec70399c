// Collectives among a fixed set of ranks. Every rank of the group calls the same sequence of operations;
// implementations: self (one rank), threads (ranks are threads of one process), gloo (CPU processes), nccl (GPUs).
//
// Operations that take a Stream are called inside a task of that stream: they are complete, for work queued on the
// stream afterwards, when the call returns (CPU: done; CUDA: enqueued). Host operations block. When any rank has called
// abort() or died, every blocked or later call of every rank throws TrainError carrying the first reason.
//
// Reductions add in the array's own type, and every rank gets identical bits, run after run on the same ranks. self,
// threads and gloo add in rank order 0, 1, ..., size-1, so they agree with each other too; nccl adds in the order of
// its rings and trees, which follow the topology of the GPUs.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "comm/abort.h"
#include "device/device.h"

namespace megatoken {

enum class Reduce { sum, max, min };

class Group {
 public:
  virtual ~Group() = default;
  virtual int64 rank() const = 0;
  virtual int64 size() const = 0;

  // out[r * bytes, (r+1) * bytes) = rank r's in[0, bytes). `in` may be the own part of `out`.
  virtual void all_gather(Stream& stream, const void* in, void* out, int64 bytes) = 0;
  // out[0, count) = sum over ranks of in[rank() * count, ...). `out` may be the own part of `in`.
  virtual void reduce_scatter(Stream& stream, const float* in, float* out, int64 count) = 0;
  virtual void all_reduce(Stream& stream, float* data, int64 count) = 0;
  virtual void broadcast(Stream& stream, void* data, int64 bytes, int64 root) = 0;
  // Sends to one rank and receives from another at once (ring exchange).
  virtual void send_receive(Stream& stream, const void* send, int64 to, void* receive, int64 from, int64 bytes) = 0;

  // Host values: blocking, on the calling thread.
  virtual void all_reduce_host(std::span<double> values, Reduce op) = 0;
  virtual std::vector<std::string> all_gather_host(const std::string& value) = 0;
  virtual void barrier() = 0;

  // Ranks of equal color form a group, ordered by their rank here. Collective.
  virtual std::shared_ptr<Group> split(int64 color) = 0;
  // Tells every rank, blocked or not, to stop with this reason. Callable from any thread; the first reason wins.
  virtual void abort(const std::string& reason) = 0;
  // Where this rank learns of an abort: one for a group and all that are split from it.
  virtual const std::shared_ptr<AbortState>& abort_state() const = 0;
  // Bytes this rank has sent to other ranks through stream operations so far (its own part not counted).
  virtual int64 bytes_sent() const = 0;
};

std::shared_ptr<Group> create_self_group(std::shared_ptr<AbortState> abort = std::make_shared<AbortState>());
// Rank `rank` of `size`, alone: every operation copies as many bytes as a real one receives, from this rank's own memory.
// For rehearsals; the values are not those of a real group.
std::shared_ptr<Group> create_loopback_group(int64 rank, int64 size);
// One group of `size` ranks for threads of this process: element r is rank r's handle. Streams of the CPU or of CUDA
// devices, which may be one device: stream operations copy between the ranks' memory.
// A rank that does not come to an operation within `timeout` after another has, or whose handle is gone, aborts the
// group.
std::vector<std::shared_ptr<Group>> create_thread_groups(int64 size,
                                                         std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace megatoken
