// The streams a step's work runs on and the places its buffers lie in: the words that planning and running share.
#pragma once

#include <string_view>

#include "base/dtype.h"

namespace megatoken {

enum class StreamId : std::uint8_t { compute, h2d, d2h, exchange };
inline constexpr int kNumStreams = 4;

enum class Place : std::uint8_t { device, host };
inline constexpr int kNumPlaces = 2;

// A point of a stream. seq 0: nothing to wait for.
struct Ticket {
  StreamId stream = StreamId::compute;
  int64 seq = 0;
};

constexpr std::string_view name_of(StreamId stream) {
  switch (stream) {
    case StreamId::compute:
      return "compute";
    case StreamId::h2d:
      return "host-to-device";
    case StreamId::d2h:
      return "device-to-host";
    case StreamId::exchange:
      return "exchange";
  }
  return "?";
}

constexpr std::string_view name_of(Place place) { return place == Place::device ? "device" : "host"; }

}  // namespace megatoken
