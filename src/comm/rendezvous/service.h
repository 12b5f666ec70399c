// The meeting point of a job's ranks, run by rank 0 on a thread of its own: waits for all ranks, compares their
// settings, keeps keys and values, listens to heartbeats and tells everybody the first failure.
//
// Anybody may connect: who does not say a rank's hello soon is dropped, without harm to the others.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/rendezvous/connection.h"

namespace megatoken {

struct ServiceOptions {
  int64 size = 1;
  std::string job;                  // ranks of another job are turned away
  std::chrono::milliseconds join;   // within which all ranks come, from the start of the service
  std::chrono::milliseconds beat;   // between heartbeats
  std::chrono::milliseconds limit;  // of silence, after which a rank counts as lost
};

class RendezvousService {
 public:
  RendezvousService(Socket listener, ServiceOptions options);
  // Waits until every rank has gone or was lost, some seconds at most once the job has ended.
  ~RendezvousService();
  int64 port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    explicit Guest(Socket socket) : connection(std::move(socket), kMaxFirstFrame) {}
    Connection connection;
    int64 rank = -1;  // -1: has not said hello
    bool left = false;
  };
  struct PendingGet {
    std::weak_ptr<Guest> guest;
    Get get;
    int64 missing = 0;
  };

  void serve();
  bool over() const;
  void poll_once();
  void read(const std::shared_ptr<Guest>& guest);
  void take(const std::shared_ptr<Guest>& guest, const Message& message);
  void take_hello(const std::shared_ptr<Guest>& guest, const Hello& hello);
  void turn_away(Guest& guest, int64 code, const std::string& reason);
  void welcome();
  void take_put(const Put& put);
  void take_get(const std::shared_ptr<Guest>& guest, const Get& get);
  void answer(const PendingGet& pending);
  void check_times();
  void check_missing();
  void lose(int64 rank, const std::string& why);
  void send_to_all(const Message& message);
  void fail(int64 code, int64 rank, const std::string& reason);
  void end(const Abort& failure);
  std::string describe(int64 rank) const;

  Socket listener_;
  const int64 port_;
  const ServiceOptions options_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point next_beat_ = started_;
  std::deque<std::shared_ptr<Guest>> guests_;
  std::vector<std::optional<Hello>> hellos_;  // by rank
  int64 num_come_ = 0;
  int64 num_left_ = 0;
  std::optional<Clock::time_point> welcomed_;
  std::optional<Abort> failure_;  // the first
  Clock::time_point ended_at_;
  std::string turned_away_;  // the last one, in words
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<std::shared_ptr<PendingGet>>> waiting_;
  std::thread thread_;
};

}  // namespace megatoken
