// Gloo's connections from one rank to every other, and the transfers over them.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace megatoken {

class Transfers;

// Used by one thread at a time.
class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  // Collective over the rendezvous; `name` tells several meshes of one job apart. TrainError when a rank can't be
  // reached.
  static std::shared_ptr<Mesh> connect(std::shared_ptr<Rendezvous> rendezvous,
                                       std::shared_ptr<gloo::transport::Device> device, const std::string& name,
                                       std::chrono::milliseconds timeout);
  const std::shared_ptr<Rendezvous>& rendezvous() const { return rendezvous_; }
  const std::shared_ptr<AbortState>& abort_state() const { return rendezvous_->abort_state(); }
  // At least `count` floats that live from one call to the next.
  float* scratch(int64 count);

 private:
  friend class Transfers;
  // What gloo::rendezvous::Context does, through our rendezvous instead of a store of Gloo's.
  class Context : public gloo::Context {
   public:
    Context(const Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device);
    gloo::transport::Context& transport() { return *transportContext_; }
  };
  Mesh(std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<gloo::transport::Device> device,
       std::chrono::milliseconds timeout);
  void connect_pairs(const std::string& name);
  void interrupt();

  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::chrono::milliseconds timeout_;
  std::shared_ptr<Context> context_;
  std::vector<float> scratch_;
  std::mutex mutex_;
  std::set<Transfers*> active_;
};

// The sends and receives of one operation. Ranks are those of the rendezvous. Messages between two ranks that have one
// tag are matched in their order; sizes are equal on both sides.
class Transfers {
 public:
  // what: the operation, for messages. AbortedError when the job has failed.
  Transfers(Mesh& mesh, std::uint64_t tag, const char* what);
  // No memory is touched afterwards.
  ~Transfers();
  Transfers(const Transfers&) = delete;

  // Nothing happens for 0 bytes. The memory must stay as it is until wait().
  void send(int64 to, const void* data, int64 bytes);
  void receive(int64 from, void* data, int64 bytes);
  // Waits until the oldest `count` receives that were not waited for are there.
  void wait_received(int64 count);
  // Waits for everything. AbortedError with the first reason when the job fails.
  void wait();
  int64 num_receives() const { return static_cast<int64>(receives_.size()); }

 private:
  friend class Mesh;
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    int64 peer;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };
  void start(std::vector<Transfer>& list, int64 peer, void* data, int64 bytes, bool sending);
  [[noreturn]] void fail(int64 peer, const std::string& why);

  Mesh& mesh_;
  const std::uint64_t tag_;
  const char* const what_;
  std::vector<Transfer> sends_, receives_;
  std::size_t received_ = 0;
  Clock::time_point progress_ = Clock::now();  // the last transfer's end
};

}  // namespace megatoken
