#pragma once

#include "executor/weights_below.h"
#include "kernels/ops.h"
#include "memory/arena.h"
#include "memory/device_memory.h"

namespace klotski {

// Where a pipeline keeps what it computes with. All of it lives longer than the pipeline.
struct ComputeMemory {
  Tier& tier;
  // Of a device: its memory, the program's below it, and the weights there. Null: the compute tier
  // is the program's.
  DeviceMemory* device = nullptr;
  Tier* below = nullptr;
  WeightsBelow* weights_below = nullptr;
  const Processor* cpu = nullptr;  // what the CPU beside the device computes with

  BufferPool pool(std::string_view kind, int64_t count, uint64_t bytes_each) const {
    if (!device) return BufferPool(tier, kind, count, bytes_each);
    const uint64_t each = DeviceMemory::rounded(bytes_each);
    return BufferPool(device->take(kind, static_cast<uint64_t>(count) * each), count, each);
  }
};

}  // namespace klotski
