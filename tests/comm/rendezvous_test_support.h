// Jobs on the loopback.
#pragma once

#include "comm/rendezvous/rendezvous.h"

namespace megatoken {

// A port that nobody listens at just now.
inline int64 free_port() { return port_of(*listen_at("127.0.0.1", 0)); }

inline JoinOptions loopback_job(int64 size) {
  JoinOptions options;
  options.size = size;
  options.master = "127.0.0.1";
  options.ports = {free_port()};
  options.job = "test";
  options.one_host = true;
  return options;
}

}  // namespace megatoken
