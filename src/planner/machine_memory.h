#pragma once

#include <cstdint>
#include <optional>

#include "base/memory_limit.h"

namespace klotski {

// A device's memory as it was when planning began.
struct DeviceMemoryState {
  uint64_t own_bytes = 0;           // taken by the driver's context and code
  uint64_t own_bytes_at_start = 0;  // taken by them before anything ran
  uint64_t free_bytes = 0;
  // Bytes that the device's operations take besides those that they compute with.
  uint64_t processor_bytes = 0;
};

// The machine's memory as it was when planning began. Plans are pure functions of it: whoever opens
// a target takes the snapshot.
struct MachineMemory {
  MemoryLeft left{};               // within every limit of the process
  uint64_t resident_bytes = 0;     // the process's
  uint64_t stack_bytes = 0;        // stacks of the threads that a run starts
  uint64_t held_weight_bytes = 0;  // the process's weights that a run before left in host slots
  uint64_t pinned_bytes = 0;       // pinned bytes of these weights
  std::optional<DeviceMemoryState> device{};  // nothing: the CPU computes
};

}  // namespace klotski
