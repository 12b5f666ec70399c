#include "comm/rendezvous/service.h"

#include <poll.h>

#include <algorithm>

#include "comm/rendezvous/settings.h"

namespace megatoken {
namespace {

using std::chrono::milliseconds;

// To say hello, for whoever connects.
constexpr milliseconds kHelloLimit{5000};
// For the last words to arrive once the job has ended.
constexpr milliseconds kLinger{5000};
// Connections that have not said hello; more are turned away, the oldest first.
constexpr std::size_t kMaxStrangers = 256;

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

}  // namespace

RendezvousService::RendezvousService(Socket listener, ServiceOptions options)
    : listener_(std::move(listener)),
      port_(port_of(listener_)),
      options_(std::move(options)),
      hellos_(static_cast<std::size_t>(options_.size)),
      thread_([this] { serve(); }) {}

RendezvousService::~RendezvousService() { thread_.join(); }

void RendezvousService::serve() {
  while (!over()) {
    poll_once();
    check_times();
    for (const auto& guest : guests_) guest->connection.flush();
    std::erase_if(guests_, [](const auto& guest) { return !guest->connection.open(); });
  }
}

// Late ranks shall hear of a failure too, so that while ranks are still to come it stays until they were due.
bool RendezvousService::over() const {
  if (!failure_ && num_left_ < options_.size) return false;
  const auto now = Clock::now();
  const bool rank_here =
      std::any_of(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->rank >= 0; });
  if (num_come_ < options_.size && now < started_ + options_.join) return false;
  return !rank_here || now > ended_at_ + kLinger;
}

void RendezvousService::poll_once() {
  std::vector<pollfd> waits{{listener_.fd(), POLLIN, 0}};
  for (const auto& guest : guests_)
    waits.push_back({guest->connection.socket().fd(),
                     static_cast<short>(guest->connection.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  const auto longest = std::min<milliseconds>(options_.beat / 2, milliseconds(100));
  if (poll(waits.data(), waits.size(), static_cast<int>(longest.count())) <= 0) return;
  const auto known = guests_;  // reading may end some
  for (std::size_t i = 0; i < known.size(); ++i)
    if ((waits[i + 1].revents & ~POLLOUT) != 0) read(known[i]);
  if (waits[0].revents == 0) return;
  while (auto socket = accept_at(listener_)) {
    guests_.push_back(std::make_shared<Guest>(std::move(*socket)));
    const auto strangers =
        std::count_if(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->rank < 0; });
    if (static_cast<std::size_t>(strangers) > kMaxStrangers)
      guests_.erase(std::find_if(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->rank < 0; }));
  }
}

void RendezvousService::read(const std::shared_ptr<Guest>& guest) {
  guest->connection.receive();
  try {
    while (const auto message = guest->connection.next()) take(guest, *message);
  } catch (const ProtocolError& error) {
    if (guest->rank < 0) {
      turned_away_ = fmt::format("{} sent {}", guest->connection.socket().peer_address(), error.what());
    } else {
      lose(guest->rank, fmt::format("its connection is broken: {}", error.what()));
    }
    guest->connection.close();
  }
  if (!guest->connection.open() && guest->rank >= 0)
    lose(guest->rank, "it ended without a word (killed, or out of memory)");
}

void RendezvousService::take(const std::shared_ptr<Guest>& guest, const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) {
    if (guest->rank >= 0) throw ProtocolError("a second hello");
    return take_hello(guest, *hello);
  }
  if (guest->rank < 0) throw ProtocolError("no hello of a rank");
  if (const auto* put = std::get_if<Put>(&message)) return take_put(*put);
  if (const auto* get = std::get_if<Get>(&message)) return take_get(guest, *get);
  if (const auto* abort = std::get_if<Abort>(&message)) return fail(abort->code, guest->rank, abort->reason);
  if (std::holds_alternative<Leave>(message)) {
    if (std::exchange(guest->left, true)) throw ProtocolError("it left twice");
    if (++num_left_ < options_.size || failure_) return;
    ended_at_ = Clock::now();
    return send_to_all(Left{});
  }
  if (!std::holds_alternative<Heartbeat>(message)) throw ProtocolError("a message of the service's own");
}

void RendezvousService::take_hello(const std::shared_ptr<Guest>& guest, const Hello& hello) {
  const std::string who = fmt::format("rank {} (host {}, process {})", hello.rank, hello.peer.host, hello.peer.process);
  if (hello.job != options_.job)
    return turn_away(*guest, kOtherJob,
                     fmt::format("{} belongs to job \"{}\", the job here is \"{}\"", who, hello.job, options_.job));
  constexpr auto kConfig = static_cast<int64>(ExitCode::config);
  if (hello.size != options_.size)
    return turn_away(*guest, kConfig,
                     fmt::format("WORLD_SIZE: {} says {}, rank 0 says {}", who, hello.size, options_.size));
  if (hello.rank < 0 || hello.rank >= options_.size)
    return turn_away(*guest, kConfig, fmt::format("RANK: {} of {} ranks", who, options_.size));
  auto& place = hellos_[static_cast<std::size_t>(hello.rank)];
  if (place)
    return turn_away(*guest, kConfig, fmt::format("RANK: {} came, and there already is {}", who, describe(hello.rank)));
  place = hello;
  place->peer.address = guest->connection.socket().peer_address();
  guest->rank = hello.rank;
  guest->connection.set_max_frame(kMaxFrame);
  ++num_come_;
  if (failure_) return guest->connection.send(*failure_);
  guest->connection.send(Heartbeat{});  // this is the right place
  const auto first =
      std::find_if(hellos_.begin(), hellos_.end(), [&](const auto& h) { return h && h->rank != hello.rank; });
  if (first != hellos_.end()) {
    const Hello& low = (*first)->rank < hello.rank ? **first : hello;
    const Hello& high = (*first)->rank < hello.rank ? hello : **first;
    const std::string difference =
        compare_settings(low.settings, high.settings, describe(low.rank), describe(high.rank));
    if (!difference.empty())
      return fail(static_cast<int64>(ExitCode::config), -1, "the ranks' configurations differ: " + difference);
  }
  if (num_come_ == options_.size) welcome();
}

void RendezvousService::turn_away(Guest& guest, int64 code, const std::string& reason) {
  turned_away_ = reason;
  guest.connection.send(Abort{code, -1, "turned away by rank 0: " + reason});
  guest.connection.flush();
  guest.connection.close();
}

void RendezvousService::welcome() {
  std::string outside;  // an address by which another host reached this one
  for (const auto& guest : guests_)
    if (guest->rank >= 0 && !is_loopback(guest->connection.socket().peer_address()))
      outside = guest->connection.socket().local_address();
  Welcome all;
  for (const auto& hello : hellos_) {
    all.peers.push_back(hello->peer);
    std::string& address = all.peers.back().address;
    // Others reach a rank of this host by the address by which they reached this service.
    if (is_loopback(address) && !outside.empty()) address = outside;
  }
  welcomed_ = Clock::now();
  send_to_all(all);
}

void RendezvousService::take_put(const Put& put) {
  values_[put.key] = put.value;
  const auto found = waiting_.find(put.key);
  if (found == waiting_.end()) return;
  for (const auto& pending : found->second)
    if (--pending->missing == 0) answer(*pending);
  waiting_.erase(found);
}

void RendezvousService::take_get(const std::shared_ptr<Guest>& guest, const Get& get) {
  const auto pending = std::make_shared<PendingGet>(PendingGet{guest, get, 0});
  for (const std::string& key : get.keys) {
    if (values_.contains(key)) continue;
    ++pending->missing;
    waiting_[key].push_back(pending);
  }
  if (pending->missing == 0) answer(*pending);
}

void RendezvousService::answer(const PendingGet& pending) {
  const auto guest = pending.guest.lock();
  if (!guest) return;
  Values values{pending.get.request, {}};
  for (const std::string& key : pending.get.keys) values.values.push_back(values_.at(key));
  guest->connection.send(values);
}

void RendezvousService::check_times() {
  const auto now = Clock::now();
  for (const auto& guest : guests_)
    if (guest->rank < 0 && now > guest->connection.opened() + kHelloLimit) {
      turned_away_ = fmt::format("{} connected and said no hello", guest->connection.socket().peer_address());
      guest->connection.close();
    }
  if (failure_ || num_left_ == options_.size) return;
  if (!welcomed_) {
    if (now > started_ + options_.join) check_missing();
    return;
  }
  for (const auto& guest : guests_)
    if (guest->rank >= 0 && now > std::max(guest->connection.heard(), *welcomed_) + options_.limit)
      return lose(guest->rank, fmt::format("nothing was heard of it for {} s (it was stopped, or its host was cut off)",
                                           seconds(options_.limit)));
  if (now < next_beat_) return;
  next_beat_ = now + options_.beat;
  send_to_all(Heartbeat{});
}

void RendezvousService::check_missing() {
  std::string missing;
  for (std::size_t r = 0; r < hellos_.size(); ++r)
    if (!hellos_[r]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  fail(static_cast<int64>(ExitCode::config), -1,
       fmt::format("WORLD_SIZE {}: rank {} did not come to MASTER_PORT {} within {} s{}", options_.size, missing, port_,
                   seconds(options_.join), turned_away_.empty() ? "" : "; turned away: " + turned_away_));
}

void RendezvousService::lose(int64 rank, const std::string& why) {
  if (num_left_ == options_.size) return;
  end({static_cast<int64>(ExitCode::failed), rank, fmt::format("{}: lost: {}", describe(rank), why), true});
}

void RendezvousService::send_to_all(const Message& message) {
  for (const auto& guest : guests_)
    if (guest->rank >= 0 && guest->connection.open()) guest->connection.send(message);
}

void RendezvousService::fail(int64 code, int64 rank, const std::string& reason) {
  end({code, rank, rank < 0 ? reason : fmt::format("{}: {}", describe(rank), reason)});
}

void RendezvousService::end(const Abort& failure) {
  if (failure_) return;
  failure_ = failure;
  ended_at_ = Clock::now();
  send_to_all(*failure_);
}

std::string RendezvousService::describe(int64 rank) const {
  const auto& hello = hellos_[static_cast<std::size_t>(rank)];
  if (!hello) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, process {})", rank, hello->peer.host, hello->peer.process);
}

}  // namespace megatoken
