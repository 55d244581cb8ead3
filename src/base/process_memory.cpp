#include "base/process_memory.h"

#include <fstream>
#include <string>

#include "base/bytes.h"

namespace klotski {

namespace {

// A line such as "VmRSS:      1234 kB".
uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == key && status >> kibibytes) return kibibytes * kKiB;
  }
  return 0;
}

}  // namespace

uint64_t resident_bytes() { return status_bytes("VmRSS:"); }
uint64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

}  // namespace klotski
