#include "base/cpu_limit.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "base/control_groups.h"
#include "base/numbers.h"

namespace klotski {

namespace {

// Whole processors' worth of time a group may use, or nothing where it sets no quota. A fraction is
// dropped: a thread that is stopped in the middle of every period holds up all other threads.
std::optional<int> cpus_of(const ControlGroup& group) {
  std::string quota;
  std::string period;
  if (group.version == 2) {
    std::istringstream words(first_line(group.folder / "cpu.max"));  // "max 100000"
    words >> quota >> period;
  } else {
    quota = first_line(group.folder / "cpu.cfs_quota_us");  // "-1": none
    period = first_line(group.folder / "cpu.cfs_period_us");
  }
  const auto granted = parse_uint(quota);
  const auto of = parse_uint(period);
  if (!granted || !of || *of == 0) return std::nullopt;
  return static_cast<int>(std::clamp<uint64_t>(*granted / *of, 1, 1u << 20));
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

int usable_cpus() {
  const auto allowed = static_cast<int>(allowed_cpus().size());
  const auto present = static_cast<int>(std::thread::hardware_concurrency());
  return usable_cpus(allowed > 0 ? allowed : present, "/proc", "/sys/fs/cgroup");
}

int usable_cpus(int allowed, const std::filesystem::path& proc,
                const std::filesystem::path& cgroups) {
  int least = std::max(allowed, 1);
  for (const ControlGroup& group : control_groups(proc, cgroups, "cpu")) {
    least = std::min(least, cpus_of(group).value_or(least));
  }
  return least;
}

}  // namespace klotski
