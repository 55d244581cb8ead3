#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/tier.h"
#include "probe/limits.h"

namespace klotski {

// Measures how fast the threads of `cpu` read memory, and how fast this file is read past the page
// cache, in blocks of several sizes and with several of them under way. Every part of the file that
// counts was read once before: some disks are much slower at bytes that were never read, and a run
// soon has read all of its file. Then both at once, with pieces of `unit_bytes`, as a run reads and
// multiplies them. Without a file, or with an empty one, there are no rates of a disk. Takes memory
// from `tier` alone.
MachineProfile measure_machine(const Processor& cpu,
                               const std::optional<std::filesystem::path>& file_on_disk,
                               uint64_t unit_bytes, Tier& tier, const ProbeLimits& limits = {});

}  // namespace klotski
