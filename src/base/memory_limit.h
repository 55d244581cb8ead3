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

  uint64_t least() const;  // the smallest of the bounds that exist
};
MemoryLeft memory_left();

// A message for memory that the system refused: bytes needed (`bytes`, the least that would do),
// the limit that bounds them and the bytes missing, as far as both are known.
std::string describe_shortage(uint64_t bytes, const MemoryLeft& left = memory_left());

// Memory left, read from other folders, for tests: proc stands for /proc, cgroups for
// /sys/fs/cgroup.
MemoryLeft memory_left(const std::filesystem::path& proc, const std::filesystem::path& cgroups);

}  // namespace klotski
