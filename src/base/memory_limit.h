#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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

// Bounds the bytes that the process may hold in all, for allowed_memory_left(): --ram. Documents
// are read before there is a plan that keeps to it.
void allow_memory(uint64_t bytes);
// Bytes that may be taken now within memory_left() and the bytes allowed.
uint64_t allowed_memory_left();
// Refuses (does_not_fit) to read `what` where that takes more than `left` bytes.
void require_memory(uint64_t bytes, uint64_t left, std::string_view what);

// A message for memory that the system refused: bytes needed (`bytes`, the least that would do),
// the limit that bounds them and the bytes missing, as far as both are known.
std::string describe_shortage(uint64_t bytes, const MemoryLeft& left = memory_left());

// Memory left, read from other folders, for tests: proc stands for /proc, cgroups for
// /sys/fs/cgroup.
MemoryLeft memory_left(const std::filesystem::path& proc, const std::filesystem::path& cgroups);

}  // namespace klotski
