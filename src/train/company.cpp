#include "train/company.h"

#include <algorithm>

#include "base/error.h"

namespace megatoken {
namespace {

// Cores that a rank may use: each core of its mask, shared with the other ranks of the host that may use it too. A rank
// that its launcher has bound has its own; unbound ones share all.
double own_cores(const std::vector<Peer>& peers, std::size_t rank) {
  double cores = 0;
  for (std::size_t core = 0; core < peers[rank].cores.size(); ++core) {
    if (peers[rank].cores[core] != '1') continue;
    double users = 0;
    for (const Peer& peer : peers)
      if (peer.host_id == peers[rank].host_id && core < peer.cores.size() && peer.cores[core] == '1') ++users;
    cores += 1 / users;
  }
  return cores;
}

}  // namespace

std::vector<int64> Company::local_ranks(int64 size, int64 num_machines) const {
  std::vector<int64> ranks;
  const int64 per_host = ranks_per_host(size, num_machines);
  for (int64 r = 0; r < size; ++r) ranks.push_back(rendezvous_ == nullptr ? r % per_host : rendezvous_->local_rank(r));
  return ranks;
}

int64 Company::ranks_per_host(int64 size, int64 num_machines) const {
  if (rendezvous_ == nullptr) return (size + num_machines - 1) / num_machines;
  int64 most = 1;
  for (int64 r = 0; r < rendezvous_->size(); ++r) most = std::max(most, rendezvous_->local_size(r));
  return most;
}

Machine Company::agree_on_machine(const Machine& own, int64 ranks_per_host) const {
  if (rendezvous_ == nullptr) return own;
  const std::vector<Peer>& peers = rendezvous_->peers();
  const auto rank = static_cast<std::size_t>(rendezvous_->rank());
  const auto allowed = std::count(peers[rank].cores.begin(), peers[rank].cores.end(), '1');
  double cores = own_cores(peers, rank);
  if (own.cores < allowed)  // a quota of the host's, beside its mask
    cores = std::min(
        cores, static_cast<double>(own.cores) / static_cast<double>(rendezvous_->local_size(rendezvous_->rank())));
  Machine least = own;
  least.cores = std::max<int64>(1, static_cast<int64>(cores + 1e-6)) * ranks_per_host;
  for (const std::string& text : rendezvous_->gather_processes(
           "machine", fmt::format("{} {} {}", own.device_bytes, own.host_bytes, least.cores))) {
    std::size_t at = 0, used = 0;
    for (int64* const value : {&least.device_bytes, &least.host_bytes, &least.cores}) {
      *value = std::min<int64>(*value, std::stoll(text.substr(at), &used));
      at += used;
    }
  }
  return least;
}

std::string Company::of_first(const std::string& name, const std::function<std::string()>& decide) const {
  if (rendezvous_ == nullptr) return decide();
  if (first()) rendezvous_->put(name, decide());
  return rendezvous_->get({name}).front();
}

void Company::one_of_host_first(const std::string& name, const std::function<void()>& work) const {
  if (rendezvous_ == nullptr) return work();
  const auto& peers = rendezvous_->peers();
  const std::string& host = peers[static_cast<std::size_t>(rendezvous_->rank())].host_id;
  const auto leader =
      std::find_if(peers.begin(), peers.end(), [&](const Peer& p) { return p.host_id == host; }) - peers.begin();
  const std::string done = fmt::format("{} on the host of rank {}", name, leader);
  if (rendezvous_->rank() != leader) rendezvous_->get({done});
  work();
  if (rendezvous_->rank() == leader) rendezvous_->put(done, "");
}

void Company::require_equal(const std::string& what, const std::string& digest) const {
  if (rendezvous_ == nullptr) return;
  const auto leaders = rendezvous_->process_leaders();
  const auto all = rendezvous_->gather_processes("equal " + what, digest);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != all[0])
      throw FileError(
          "{} is another one for rank {} (host {}) than for rank 0 (host {}): every rank needs the same files", what,
          leaders[i], rendezvous_->peers()[static_cast<std::size_t>(leaders[i])].host, rendezvous_->peers()[0].host);
}

Settings settings_of(const RunConfig& config) {
  Settings settings;
  for (const auto& [key, value] : config.given) {
    const bool own = key == "machine_rank" || key == "local_rank" || key == "main_process_ip" ||
                     key == "main_process_port" || key == "accelerate_config";
    if (!own) settings.emplace_back(key, value);
  }
  return settings;
}

}  // namespace megatoken
