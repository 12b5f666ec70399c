// The memory that a plan's offsets point into: one piece of device memory and one of host memory.
#pragma once

#include <memory>

#include "device/device.h"
#include "memory/pinned_pool.h"
#include "plan/plan.h"

namespace megatoken {

struct ArenaOptions {
  // Fills unwritten and freed bytes with NaN patterns (every byte 0xFF), so that reading them shows in the result.
  // Default: when the environment variable MEGATOKEN_POISON is 1.
  bool poison = poison_by_environment();

  static bool poison_by_environment();
};

class Arena {
 public:
  // bytes: as Plan::arena_bytes() or arena_for(). Host memory comes from `pool` when there is one. FitError when there
  // is not enough. device and pool must outlive the arena.
  Arena(Device& device, const PlaceBytes& bytes, PinnedPool* pool = nullptr, ArenaOptions options = {});

  std::byte* data(Place place) const { return memory_[static_cast<std::size_t>(place)].data(); }
  int64 bytes(Place place) const { return bytes_[static_cast<std::size_t>(place)]; }

  bool poisons() const { return options_.poison; }
  // Inside a task of the stream: fills [offset, offset + bytes) with 0xFF.
  void poison(Stream& stream, Place place, int64 offset, int64 bytes) const;

 private:
  PlaceBytes bytes_{};
  ArenaOptions options_;
  std::array<Memory, kNumPlaces> memory_;
  Memory pattern_;  // host bytes 0xFF; only when poisoning
};

}  // namespace megatoken
