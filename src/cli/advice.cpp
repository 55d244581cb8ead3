#include "cli/advice.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.h"

namespace klotski {

namespace {

constexpr uint64_t kUsualLockedBytes = 8 * kMiB;  // default of most systems today
constexpr double kSlowDisk = 1e9;                 // bytes a second

bool huge_pages_never() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return std::getline(file, line) && line.find("[never]") != std::string::npos;
}

}  // namespace

std::vector<std::string> machine_advice(ReadMethod disk_reads, const MachineProfile* machine) {
  std::vector<std::string> advice;
  rlimit locked{};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < kUsualLockedBytes) {
    advice.push_back(fmt::format(
        "only {} of memory may be locked, which older kernels count io_uring against: raise the "
        "limit (ulimit -l, LimitMEMLOCK)",
        format_bytes(locked.rlim_cur)));
  }
  if (huge_pages_never()) {
    advice.emplace_back(
        "transparent huge pages are switched off: write madvise to "
        "/sys/kernel/mm/transparent_hugepage/enabled");
  }
  if (disk_reads != ReadMethod::io_uring) {
    advice.emplace_back(
        "io_uring is refused, so disk reads take threads: allow it (kernel.io_uring_disabled, the "
        "container's seccomp profile) or build with liburing");
  }
  if (machine != nullptr && !machine->disk().rates.empty()) {
    double best = 0.0;
    for (const DiskRate& rate : machine->disk().rates) best = std::max(best, rate.bytes_per_second);
    if (best < kSlowDisk) {
      advice.push_back(
          fmt::format("the model's disk reads {:.2f} GB/s at most: put the model on a faster one, "
                      "or give the run memory for more of its weights",
                      best * 1e-9));
    }
  }
  return advice;
}

}  // namespace klotski
