#include "memory/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr int64 kPatternBytes = int64{1} << 20;

}  // namespace

bool ArenaOptions::poison_by_environment() {
  const char* value = std::getenv("MEGATOKEN_POISON");
  return value != nullptr && std::string_view(value) == "1";
}

Arena::Arena(Device& device, const PlaceBytes& bytes, PinnedPool* pool, ArenaOptions options)
    : bytes_(bytes), options_(options) {
  check(bytes[0] >= 0 && bytes[1] >= 0, "an arena of {} and {} bytes", bytes[0], bytes[1]);
  if (bytes[0] > 0) memory_[0] = device.allocate(bytes[0], "device arena");
  if (bytes[1] > 0)
    memory_[1] = pool != nullptr ? pool->take(bytes[1], "host arena") : device.allocate_host(bytes[1], "host arena");
  if (!options_.poison) return;
  pattern_ = device.allocate_host(kPatternBytes, "poison pattern");
  std::memset(pattern_.data(), 0xFF, static_cast<std::size_t>(kPatternBytes));
  const std::unique_ptr<Stream> stream = device.create_stream(StreamMode::in_order_inline);
  stream->submit([this](Stream& on) {
    for (const Place place : {Place::device, Place::host})
      poison(on, place, 0, bytes_[static_cast<std::size_t>(place)]);
  });
  stream->synchronize();
}

void Arena::poison(Stream& stream, Place place, int64 offset, int64 bytes) const {
  check(options_.poison && offset >= 0 && bytes >= 0 && offset + bytes <= this->bytes(place),
        "poison of {} bytes at {}", bytes, offset);
  for (int64 done = 0; done < bytes; done += kPatternBytes)
    stream.copy(data(place) + offset + done, pattern_.data(), std::min(kPatternBytes, bytes - done));
}

}  // namespace megatoken
