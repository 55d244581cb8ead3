#include "base/memory_limit.h"

#include <sys/resource.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/bytes.h"
#include "base/control_groups.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/process_memory.h"

namespace klotski {

namespace {

constexpr uint64_t kUnlimited = UINT64_MAX;

std::atomic<uint64_t> allowed_bytes = kUnlimited;

// The number after `key` in a file of "key value" lines, such as /proc/meminfo or memory.stat.
std::optional<uint64_t> value_of(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::string number;
    if (words >> name >> number && name == key) return parse_uint(number);
  }
  return std::nullopt;
}

// Bytes that one control group leaves: limit - usage. Page cache that can be dropped is not usage.
std::optional<uint64_t> left_in_group(const std::filesystem::path& group, const char* limit_file,
                                      const char* usage_file, const char* cache_key) {
  const auto limit = parse_uint(first_line(group / limit_file));  // "max" means none
  const auto usage = parse_uint(first_line(group / usage_file));
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 writes about 2^63 for it
  if (!limit || !usage || *limit >= kNoLimit) return std::nullopt;
  const uint64_t cache = value_of(group / "memory.stat", cache_key).value_or(0);
  const uint64_t held = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, held);
}

std::optional<uint64_t> left_in_groups(const std::filesystem::path& proc,
                                       const std::filesystem::path& cgroups) {
  std::optional<uint64_t> least;
  for (const ControlGroup& group : control_groups(proc, cgroups, "memory")) {
    const auto left =
        group.version == 2
            ? left_in_group(group.folder, "memory.max", "memory.current", "inactive_file")
            : left_in_group(group.folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file");
    if (left) least = std::min(*left, least.value_or(kUnlimited));
  }
  return least;
}

// Bytes that a limit of the process leaves; `key` names the line of /proc/self/status that counts
// for it.
std::optional<uint64_t> left_to_process(decltype(RLIMIT_AS) resource,
                                        const std::filesystem::path& proc, const char* key) {
  rlimit limit{};
  const bool known = ::getrlimit(resource, &limit) == 0;
  if (!known || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const uint64_t used = value_of(proc / "self" / "status", key).value_or(0) * kKiB;
  return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, used);
}

}  // namespace

uint64_t MemoryLeft::least() const {
  return std::min({machine.value_or(kUnlimited), control_groups.value_or(kUnlimited),
                   address_space.value_or(kUnlimited), data.value_or(kUnlimited)});
}

std::string describe_shortage(uint64_t bytes, const MemoryLeft& left) {
  struct Bound {
    const char* name;
    std::optional<uint64_t> left;
  };
  const std::array<Bound, 4> bounds{{{"by the machine's memory", left.machine},
                                     {"by the control group's limit", left.control_groups},
                                     {"of address space (ulimit -v)", left.address_space},
                                     {"of data (ulimit -d)", left.data}}};
  const auto* tightest =
      std::min_element(bounds.begin(), bounds.end(), [](const Bound& a, const Bound& b) {
        return a.left.value_or(kUnlimited) < b.left.value_or(kUnlimited);
      });
  const uint64_t allowed = tightest->left.value_or(0);
  if (bytes > allowed) {
    return fmt::format("the program needs at least {} more, the limit is {} more {}: {} too little",
                       format_bytes(bytes), format_bytes(allowed), tightest->name,
                       format_bytes(bytes - allowed));
  }
  return fmt::format("the program needs more than the {} that are left {}", format_bytes(allowed),
                     tightest->name);
}

void allow_memory(uint64_t bytes) { allowed_bytes = bytes; }

uint64_t allowed_memory_left() {
  const uint64_t allowed = allowed_bytes;
  const uint64_t left = memory_left().least();
  return allowed == kUnlimited ? left
                               : std::min(left, allowed - std::min(allowed, resident_bytes()));
}

void require_memory(uint64_t bytes, uint64_t left, std::string_view what) {
  if (bytes <= left) return;
  fail(
      ErrorKind::does_not_fit,
      "{}: reading it needs at least {} of memory, the limit is {}: {} too little; raise the limit "
      "or give a smaller one",
      what, format_bytes(bytes), format_bytes(left), format_bytes(bytes - left));
}

MemoryLeft memory_left() { return memory_left("/proc", "/sys/fs/cgroup"); }

MemoryLeft memory_left(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  MemoryLeft left{.machine = value_of(proc / "meminfo", "MemAvailable:"),
                  .control_groups = left_in_groups(proc, cgroups),
                  .address_space = left_to_process(RLIMIT_AS, proc, "VmSize:"),
                  .data = left_to_process(RLIMIT_DATA, proc, "VmData:")};
  if (left.machine) *left.machine *= kKiB;
  return left;
}

}  // namespace klotski
