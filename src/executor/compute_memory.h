#pragma once

#include "executor/host_slots.h"
#include "kernels/ops.h"
#include "memory/arena.h"
#include "memory/device_memory.h"

namespace klotski {

// The memory of a pipeline's computations. All of it lives longer than the pipeline.
struct ComputeMemory {
  Tier& tier;
  // A device's memory, host memory and its slots of weights. Null: the compute tier is the
  // program's memory.
  DeviceMemory* device = nullptr;
  Tier* host = nullptr;
  HostSlots* host_slots = nullptr;
  const Processor* cpu = nullptr;  // the CPU's processor on a machine with a device

  BufferPool pool(std::string_view kind, int64_t count, uint64_t bytes_each) const {
    if (!device) return BufferPool(tier, kind, count, bytes_each);
    const uint64_t each = DeviceMemory::rounded(bytes_each);
    return BufferPool(device->take(kind, static_cast<uint64_t>(count) * each), count, each);
  }
};

}  // namespace klotski
