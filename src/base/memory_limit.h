#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace klotski {

// Bytes this process may still take, by each thing that bounds it; nothing where it does not.
struct MemoryLeft {
  std::optional<uint64_t> machine;         // free, or freed when wanted (MemAvailable)
  std::optional<uint64_t> control_groups;  // version 1 or 2, every level up to the root
  std::optional<uint64_t> address_space;   // RLIMIT_AS
  std::optional<uint64_t> data;            // RLIMIT_DATA

  uint64_t least() const;  // of those there are
};
MemoryLeft memory_left();

// For the message when the system refuses memory: what is needed, what bounds it and what is
// missing, as far as that is known. `bytes` is the least that was to be had.
std::string describe_shortage(uint64_t bytes, const MemoryLeft& left = memory_left());

// The same read from other folders, for tests: proc is /proc, cgroups is /sys/fs/cgroup.
MemoryLeft memory_left(const std::filesystem::path& proc, const std::filesystem::path& cgroups);

}  // namespace klotski
