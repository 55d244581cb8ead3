#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/bytes.h"
#include "base/numbers.h"
#include "base/small_file.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr int kMostNodes = 1024;  // the most that a kernel can be built for

// The number of "node12".
std::optional<int> node_id(std::string_view name) {
  constexpr std::string_view kPrefix = "node";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto id = parse_uint(name.substr(kPrefix.size()));
  if (!id || *id >= kMostNodes || name != "node" + std::to_string(*id)) return std::nullopt;
  return static_cast<int>(*id);
}

// Bytes of the line "Node 0 MemTotal:  24643328 kB".
uint64_t total_memory(const std::string& meminfo) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string node, id, name, number, unit;
    if (!(words >> node >> id >> name >> number >> unit) || name != "MemTotal:") continue;
    uint64_t bytes = 0;
    const auto kibibytes = parse_uint(number);
    const bool sane = unit == "kB" && kibibytes && multiply_checked(*kibibytes, kKiB, &bytes);
    return sane ? bytes : 0;
  }
  return 0;
}

// The nodes that the process's own policy binds its memory to; nothing where it does not, or where
// the system does not tell (containers often forbid the question).
std::optional<std::vector<int>> bound_by_policy() {
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kMostNodes / kWordBits> mask{};
  int mode = 0;
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), static_cast<unsigned long>(kMostNodes),
                nullptr, 0UL) != 0 ||
      mode != MPOL_BIND) {
    return std::nullopt;
  }
  std::vector<int> nodes;
  for (size_t node = 0; node < kMostNodes; ++node) {
    if ((mask[node / kWordBits] >> (node % kWordBits) & 1UL) != 0) {
      nodes.push_back(static_cast<int>(node));
    }
  }
  return nodes;
}

}  // namespace

std::vector<NumaNode> numa_nodes() { return numa_nodes("/sys"); }

std::vector<NumaNode> numa_nodes(const fs::path& sys) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (fs::directory_iterator entry(sys / "devices/system/node", error), end;
       !error && entry != end; entry.increment(error)) {
    const fs::path& folder = entry->path();
    const auto id = node_id(folder.filename().native());
    const auto cpus = parse_id_list(small_file(folder / "cpulist"));
    if (!id || !cpus) continue;
    nodes.push_back(
        {.id = *id, .cpus = *cpus, .memory_bytes = total_memory(small_file(folder / "meminfo"))});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

std::vector<int> memory_nodes() {
  std::vector<int> nodes = memory_nodes("/proc");
  return bound_by_policy().value_or(std::move(nodes));  // never more than the cpuset allows
}

std::vector<int> memory_nodes(const fs::path& proc) {
  std::istringstream lines(small_file(proc / "self" / "status"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, list;
    if (!(words >> name >> list) || name != "Mems_allowed_list:") continue;
    return parse_id_list(list).value_or(std::vector<int>{});
  }
  return {};
}

}  // namespace klotski
