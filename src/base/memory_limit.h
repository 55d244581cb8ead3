#pragma once

#include <cstdint>
#include <filesystem>

namespace klotski {

// Bytes this process may still take: the least of what the machine has free (MemAvailable), what
// its control group leaves (version 1 or 2, every level up to the root) and what RLIMIT_AS allows.
uint64_t available_memory_bytes();

// The same read from other folders, for tests: proc is /proc, cgroups is /sys/fs/cgroup.
uint64_t available_memory_bytes(const std::filesystem::path& proc,
                                const std::filesystem::path& cgroups);

}  // namespace klotski
