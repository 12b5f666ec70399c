#include "comm/process_group.h"

namespace megatoken {

bool has_process_groups() { return false; }

std::shared_ptr<Group> create_process_group(std::shared_ptr<Rendezvous> /*rendezvous*/, GroupUse /*use*/,
                                            std::chrono::milliseconds /*timeout*/) {
  throw ConfigError(
      "several processes: this program was built without Gloo (install libgloo-dev and build it again); num_processes "
      "starts "
      "ranks as threads of one process");
}

}  // namespace megatoken
