#include "comm/rendezvous/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <set>

#include "comm/rendezvous/this_host.h"

namespace megatoken {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For the service's answer to a failure or to a hello.
constexpr milliseconds kAnswer{3000};
// Between tries to reach a service that is not there yet.
constexpr milliseconds kRetry{100};

milliseconds left_until(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

// A name server that does not answer keeps nobody waiting.
std::vector<std::string> resolve_within(const std::string& host, milliseconds limit) {
  std::packaged_task<std::vector<std::string>()> task([host] { return resolve(host); });
  auto addresses = task.get_future();
  std::thread(std::move(task)).detach();
  if (addresses.wait_for(limit) != std::future_status::ready)
    throw ConfigError("MASTER_ADDR: no address of host {} in time", host);
  return addresses.get();
}

bool loopback_name(const std::string& host) { return host == "localhost" || is_loopback(host); }

}  // namespace

std::shared_ptr<Rendezvous> Rendezvous::join(const JoinOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "rank {} of {}", options.rank,
        options.size);
  check(!options.ports.empty(), "a rendezvous without a port");
  std::shared_ptr<Rendezvous> rendezvous(new Rendezvous(options));
  rendezvous->connect();
  rendezvous->wait_welcome();
  rendezvous->thread_ = std::thread([raw = rendezvous.get()] { raw->run(); });
  return rendezvous;
}

Rendezvous::Rendezvous(const JoinOptions& options)
    : options_(options), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  hello_.job = options_.job;
  hello_.rank = options_.rank;
  hello_.size = options_.size;
  hello_.peer = this_host();
  hello_.settings = options_.settings;
  std::sort(hello_.settings.begin(), hello_.settings.end());
}

Rendezvous::~Rendezvous() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    thread_.join();
  }
  connection_.reset();
}

void Rendezvous::connect() {
  const auto deadline = Clock::now() + options_.join;
  std::vector<int64> ports = options_.ports;
  if (options_.rank == 0) {
    const bool inside = options_.one_host && loopback_name(options_.master);
    const std::string address = inside ? resolve(options_.master).front() : "";
    for (const int64 port : ports) {
      auto listener = listen_at(address, port);
      if (!listener) continue;
      service_ = std::make_unique<RendezvousService>(
          std::move(*listener),
          ServiceOptions{options_.size, options_.job, options_.join, options_.beat, options_.limit});
      break;
    }
    if (!service_)
      throw ConfigError("MASTER_PORT {}: in use by another program on host {}; choose another", fmt::join(ports, ", "),
                        hello_.peer.host);
    std::string why;
    if (!say_hello(inside ? address : "127.0.0.1", service_->port(), deadline, why))
      throw ConfigError("MASTER_PORT {}: rank 0 can't reach its own service: {}", service_->port(), why);
    return;
  }
  std::string why = "no answer";
  for (;;) {
    try {
      for (const std::string& address : resolve_within(options_.master, left_until(deadline)))
        for (const int64 port : ports)
          if (say_hello(address, port, deadline, why)) return;
    } catch (const ConfigError& error) {  // names may come up late
      why = error.what();
    }
    if (Clock::now() + kRetry >= deadline) break;
    std::this_thread::sleep_for(kRetry);
  }
  throw ConfigError("MASTER_ADDR {}, MASTER_PORT {}: rank {} found no rendezvous of this job within {} s: {}",
                    options_.master, fmt::join(ports, ", "), options_.rank,
                    static_cast<double>(options_.join.count()) / 1000, why);
}

// Whether a service of this job answers there.
bool Rendezvous::say_hello(const std::string& address, int64 port, Clock::time_point deadline, std::string& why) {
  connection_.reset();
  const auto limit = std::min(kAnswer, left_until(deadline));
  auto socket = connect_to(address, port, limit, why);
  if (!socket) return false;
  connection_.emplace(std::move(*socket), kMaxFrame);
  connection_->send(hello_);
  try {
    const auto answer = wait_message(std::min(deadline, Clock::now() + kAnswer));
    if (!answer)
      why = "what listens there is no rendezvous";
    else if (std::holds_alternative<Heartbeat>(*answer))
      return true;
    else if (const auto* abort = std::get_if<Abort>(&*answer); abort != nullptr && abort->code == kOtherJob)
      why = abort->reason;
    else if (abort != nullptr)
      throw Error(static_cast<ExitCode>(abort->code), abort->reason);
    else
      why = "what listens there says no hello";
  } catch (const ProtocolError& error) {
    why = fmt::format("what listens there is no rendezvous: it sent {}", error.what());
  }
  connection_.reset();
  return false;
}

std::optional<Message> Rendezvous::wait_message(Clock::time_point deadline) {
  for (;;) {
    connection_->flush();
    if (auto message = connection_->next()) return message;
    const auto left = left_until(deadline);
    if (!connection_->open() || left.count() == 0) return std::nullopt;
    pollfd wait{connection_->socket().fd(), static_cast<short>(connection_->has_unsent() ? POLLIN | POLLOUT : POLLIN),
                0};
    poll(&wait, 1, static_cast<int>(left.count()));
    connection_->receive();
  }
}

void Rendezvous::wait_welcome() {
  const auto deadline = Clock::now() + options_.join + milliseconds(1000);
  try {
    while (const auto message = wait_message(deadline)) {
      if (const auto* abort = std::get_if<Abort>(&*message))
        throw Error(static_cast<ExitCode>(abort->code), abort->reason);
      const auto* welcome = std::get_if<Welcome>(&*message);
      if (welcome == nullptr) continue;
      if (static_cast<int64>(welcome->peers.size()) != options_.size) throw ProtocolError("a wrong number of ranks");
      peers_ = welcome->peers;
      return;
    }
  } catch (const ProtocolError& error) {
    throw ConfigError("MASTER_ADDR {}: the rendezvous is broken: {}", options_.master, error.what());
  }
  throw ConfigError("MASTER_ADDR {}: the connection to rank 0 ended before all ranks had come", options_.master);
}

int64 Rendezvous::local_rank(int64 rank) const {
  const Peer* const own = &peers_[static_cast<std::size_t>(rank)];
  return std::count_if(peers_.data(), own, [&](const Peer& p) { return p.host_id == own->host_id; });
}

int64 Rendezvous::local_size(int64 rank) const {
  const Peer& own = peers_[static_cast<std::size_t>(rank)];
  return std::count_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.host_id == own.host_id; });
}

std::vector<int64> Rendezvous::process_leaders() const {
  std::vector<int64> leaders;
  std::set<int64> seen;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (seen.insert(peers_[r].process_key).second) leaders.push_back(static_cast<int64>(r));
  return leaders;
}

void Rendezvous::run() {
  auto next_beat = Clock::now();
  for (;;) {
    const auto now = Clock::now();
    std::unique_lock lock(mutex_);
    if (now >= next_beat && !failure_) {
      outgoing_.push_back(Heartbeat{});
      next_beat = now + options_.beat;
    }
    for (const Message& message : outgoing_) connection_->send(message);
    outgoing_.clear();
    const bool stopping = stop_;
    const bool overdue = failure_ && options_.overdue && !told_overdue_ && now > failed_at_ + options_.grace;
    const std::optional<Abort> failure = failure_;
    lock.unlock();

    connection_->flush();
    if (stopping) return;
    if (overdue) {
      told_overdue_ = true;
      options_.overdue(*failure);
    }
    pollfd waits[2] = {
        {wake_.fd(), POLLIN, 0},
        {connection_->socket().fd(), static_cast<short>(connection_->has_unsent() ? POLLIN | POLLOUT : POLLIN), 0}};
    poll(waits, 2, static_cast<int>(std::min(options_.beat / 2, milliseconds(100)).count()));
    eventfd_t ignored = 0;
    eventfd_read(wake_.fd(), &ignored);
    connection_->receive();
    try {
      while (const auto message = connection_->next()) take(*message);
      check_service();
    } catch (const ProtocolError& error) {
      connection_->close();
      lose_first(fmt::format("its connection is broken: {}", error.what()));
    }
  }
}

// Rank 0 is lost when its service is gone or silent, unless everything has been said.
void Rendezvous::check_service() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || left_) return;
  }
  if (!connection_->open()) return lose_first("it ended without a word");
  if (Clock::now() > connection_->heard() + options_.limit)
    lose_first(fmt::format("nothing was heard of it for {} s (it was stopped, or a host was cut off)",
                           static_cast<double>(options_.limit.count()) / 1000));
}

void Rendezvous::lose_first(const std::string& why) {
  fail({static_cast<int64>(ExitCode::failed), 0,
        fmt::format("rank 0 (host {}, process {}): lost: {}", peers_[0].host, peers_[0].process, why), true});
}

void Rendezvous::take(const Message& message) {
  if (const auto* abort = std::get_if<Abort>(&message)) return fail(*abort);
  const std::lock_guard lock(mutex_);
  if (const auto* values = std::get_if<Values>(&message))
    values_[values->request] = values->values;
  else if (std::holds_alternative<Left>(message))
    left_ = true;
  else if (!std::holds_alternative<Heartbeat>(message))
    throw ProtocolError("a message of a rank's own");
  changed_.notify_all();
}

void Rendezvous::fail(const Abort& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_at_ = Clock::now();
  }
  abort_->abort(failure.reason);
  changed_.notify_all();
}

void Rendezvous::send(const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.push_back(message);
  }
  wake();
}

void Rendezvous::wake() { eventfd_write(wake_.fd(), 1); }

void Rendezvous::put(const std::string& key, const std::string& value) {
  abort_->check();
  send(Put{key, value});
}

std::vector<std::string> Rendezvous::get(const std::vector<std::string>& keys) {
  std::unique_lock lock(mutex_);
  const int64 request = next_request_++;
  outgoing_.push_back(Get{request, keys});
  wake();
  changed_.wait(lock, [&] { return values_.contains(request) || failure_; });
  const auto found = values_.find(request);
  if (found == values_.end()) throw AbortedError(failure_->reason);
  std::vector<std::string> values = std::move(found->second);
  values_.erase(found);
  check(values.size() == keys.size(), "{} values for {} keys", values.size(), keys.size());
  return values;
}

std::vector<std::string> Rendezvous::gather_processes(const std::string& name, const std::string& value) {
  std::vector<std::string> keys;
  for (const int64 leader : process_leaders()) keys.push_back(fmt::format("{}/{}", name, leader));
  put(fmt::format("{}/{}", name, options_.rank), value);
  return get(keys);
}

void Rendezvous::abort(ExitCode code, const std::string& reason) {
  const Abort own{static_cast<int64>(code), options_.rank, reason};
  send(own);
  {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kAnswer, [&] { return failure_.has_value(); })) return;
  }
  fail({own.code, own.rank, fmt::format("rank {}: {}", own.rank, reason)});
}

std::optional<Abort> Rendezvous::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Rendezvous::fail_of_connection(const std::string& what, Clock::time_point since) {
  const auto deadline = std::max(since + options_.limit, Clock::now()) + kAnswer;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return failure_.has_value(); });
  }
  abort(ExitCode::failed, what);
  abort_->check();
  throw AbortedError(what);
}

void Rendezvous::leave() {
  send(Leave{});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return left_ || failure_; });
  if (failure_) throw AbortedError(failure_->reason);
}

}  // namespace megatoken
