#include "comm/device_group.h"

#include <map>
#include <random>

#include "comm/nccl_group.h"

namespace megatoken {
namespace {

std::string draw_id() {
  std::random_device source;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", source());
  return id;
}

const std::string& process_id() {
  static const std::string id = draw_id();
  return id;
}

// "process kind hardware"; no part has a space.
std::string text_of(const Seat& seat) {
  return fmt::format("{} {} {}", seat.process, seat.kind == DeviceKind::cuda ? "cuda" : "cpu", seat.hardware);
}

Seat seat_of(const std::string& text) {
  const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
  check(second != std::string::npos, "a rank's seat is \"{}\"", text);
  return {text.substr(0, first), text.substr(second + 1),
          text.substr(first + 1, second - first - 1) == "cuda" ? DeviceKind::cuda : DeviceKind::cpu};
}

}  // namespace

DeviceTransport choose_transport(const std::vector<Seat>& seats) {
  check(!seats.empty(), "a group of no ranks");
  bool one_process = true;
  for (std::size_t r = 0; r < seats.size(); ++r) {
    one_process = one_process && seats[r].process == seats[0].process;
    if (seats[r].kind != seats[0].kind)
      throw ConfigError(
          "ranks 0 and {} work on devices of different kinds: set device (cpu or cuda) alike on all hosts", r);
  }
  if (seats.size() == 1) return DeviceTransport::none;
  if (seats[0].kind == DeviceKind::cpu) return DeviceTransport::host;
  std::map<std::string, std::size_t> first_on;
  for (std::size_t r = 0; r < seats.size(); ++r) {
    const auto [found, alone] = first_on.emplace(seats[r].hardware, r);
    if (alone) continue;
    if (one_process) return DeviceTransport::threads;
    throw ConfigError(
        "num_processes: ranks {} and {} are given the same GPU and are not all threads of one process, which NCCL "
        "can't "
        "serve: start one rank a GPU, or all ranks in one process (megatoken train --num_processes {})",
        found->second, r, seats.size());
  }
  return DeviceTransport::nccl;
}

std::shared_ptr<Group> create_device_group(std::shared_ptr<Group> host, const Device& device) {
  std::vector<Seat> seats;
  for (const std::string& text : host->all_gather_host(text_of({process_id(), device.hardware_id(), device.kind()})))
    seats.push_back(seat_of(text));
  switch (choose_transport(seats)) {
    case DeviceTransport::none:
      return create_self_group(host->abort_state());
    case DeviceTransport::host:
    case DeviceTransport::threads:
      return host;
    case DeviceTransport::nccl:
      return create_nccl_group(std::move(host), device);
  }
  return host;
}

}  // namespace megatoken
