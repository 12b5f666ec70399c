// How the processes of a job find each other and stay in touch: one TCP service at rank 0, one connection a rank. It
// carries where each rank runs, the settings that must be equal, keys and values (addresses, NCCL's id), heartbeats and
// the reason of an abort. Not the data of training.
//
// A rank that dies is noticed at once, one that is stopped or cut off within `limit`; then every rank's abort state is
// aborted with the reason of the first that failed, "rank 3 (host b, process 7): disk full".
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/abort.h"
#include "comm/rendezvous/connection.h"
#include "comm/rendezvous/service.h"

namespace megatoken {

struct JoinOptions {
  int64 rank = 0, size = 1;
  std::string master;        // MASTER_ADDR: rank 0's host
  std::vector<int64> ports;  // MASTER_PORT; several: rank 0 takes the first that is free, the others look for it
  std::string job;           // equal on all ranks of a job; keeps jobs apart that meet by mistake
  bool one_host = false;     // no rank is elsewhere: a loopback master listens on the loopback alone
  Settings settings;         // must be equal on all ranks
  std::chrono::milliseconds join{8000};    // for all ranks to come
  std::chrono::milliseconds beat{2000};    // between heartbeats
  std::chrono::milliseconds limit{20000};  // of silence
  // Called from another thread when this rank is still here `grace` after the job has failed (a kernel that never
  // ends).
  std::chrono::milliseconds grace{20000};
  std::function<void(const Abort& failure)> overdue;
};

class Rendezvous {
 public:
  // Waits for all ranks. ConfigError naming the variable or key when that can't be: a port in use, a master that does
  // not answer, a rank that does not come, settings that differ.
  static std::shared_ptr<Rendezvous> join(const JoinOptions& options);
  // Ends this rank's part; without leave() before, the others take it for lost.
  ~Rendezvous();

  int64 rank() const { return options_.rank; }
  int64 size() const { return options_.size; }
  const std::vector<Peer>& peers() const { return peers_; }  // by rank
  // A rank's place among the ranks of its host, and how many they are.
  int64 local_rank(int64 rank) const;
  int64 local_size(int64 rank) const;
  // The lowest ranks of each process.
  std::vector<int64> process_leaders() const;

  // Values for every rank to read; the later of two puts of a key wins. Thread-safe, like all below.
  void put(const std::string& key, const std::string& value);
  // Waits until all keys are there. AbortedError when the job fails meanwhile.
  std::vector<std::string> get(const std::vector<std::string>& keys);
  // Every process' value, in the order of process_leaders(), of which this is one; collective among them. `name` is
  // used once in a job.
  std::vector<std::string> gather_processes(const std::string& name, const std::string& value);

  // Ends the job on every rank with this rank's failure, unless another failed first. Returns once that is known.
  void abort(ExitCode code, const std::string& reason);
  // The first failure; nullopt: none so far.
  std::optional<Abort> failure() const;
  const std::shared_ptr<AbortState>& abort_state() const { return abort_; }
  // A connection to another rank, of which nothing was heard since `since`, broke: waits for the reason (that rank's
  // failure is on its way), or makes one of `what`; throws AbortedError.
  [[noreturn]] void fail_of_connection(const std::string& what, std::chrono::steady_clock::time_point since);
  // Of a rank's silence.
  std::chrono::milliseconds limit() const { return options_.limit; }

  // Waits until every rank is done. AbortedError when one fails before.
  void leave();

 private:
  explicit Rendezvous(const JoinOptions& options);
  void connect();
  std::optional<Message> wait_message(std::chrono::steady_clock::time_point deadline);
  bool say_hello(const std::string& address, int64 port, std::chrono::steady_clock::time_point deadline,
                 std::string& why);
  void wait_welcome();
  void run();
  void check_service();
  void lose_first(const std::string& why);
  void take(const Message& message);
  void send(const Message& message);
  void fail(const Abort& failure);
  void wake();

  const JoinOptions options_;
  Hello hello_;
  std::unique_ptr<RendezvousService> service_;  // rank 0; goes last
  std::optional<Connection> connection_;
  std::vector<Peer> peers_;
  Socket wake_;  // an eventfd
  const std::shared_ptr<AbortState> abort_ = std::make_shared<AbortState>();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> outgoing_;
  std::map<int64, std::vector<std::string>> values_;  // answered requests
  int64 next_request_ = 0;
  std::optional<Abort> failure_;
  std::chrono::steady_clock::time_point failed_at_;
  bool left_ = false;
  bool stop_ = false;
  bool told_overdue_ = false;  // of the thread's own
  std::thread thread_;
};

}  // namespace megatoken
