#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "device/device.h"
#include "device/memory_ranges.h"

namespace klotski::cuda {

// A queue that first copies memory that is not pinned takes two pinned buffers of this size.
inline constexpr uint64_t kStagingBytes = 16 * kMiB;

// `pinned`, which outlives the queue: the program's memory that the device reads by itself.
std::unique_ptr<CopyQueue> new_queue(int device, const MemoryRanges& pinned, CopySize size);

}  // namespace klotski::cuda
