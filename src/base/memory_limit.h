#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace klotski {

// Bytes this process may still take, by each thing that bounds it; nothing where it does not.
struct MemoryLeft {
  std::optional<uint64_t> machine;         // free, or freed when wanted (MemAvailable)
  std::optional<uint64_t> control_groups;  // version 1 or 2, every level up to the root
  std::optional<uint64_t> address_space;   // RLIMIT_AS

  uint64_t least() const;  // of those there are
};
MemoryLeft memory_left();

// The same read from other folders, for tests: proc is /proc, cgroups is /sys/fs/cgroup.
MemoryLeft memory_left(const std::filesystem::path& proc, const std::filesystem::path& cgroups);

}  // namespace klotski
