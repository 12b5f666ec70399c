#include "train/process_memory.h"

#include <fstream>
#include <string>

namespace megatoken {

int64 peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "VmHWM:") {
      int64 kib = 0;
      status >> kib;
      return kib * 1024;
    }
    status.ignore(1024, '\n');
  }
  return 0;
}

}  // namespace megatoken
