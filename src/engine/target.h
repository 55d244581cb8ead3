#pragma once

#include <memory>

#include "executor/weights_below.h"

namespace klotski {

// The program's memory below a device's, kept from run to run.
struct MemoryBelow {
  MemoryBelow(Device& device, uint64_t limit_bytes, const UnitLayouts& layouts,
              const WeightsBelow::Slots& weight_slots)
      : tier("RAM", limit_bytes), slots(weight_slots), weights(device, tier, layouts, slots) {}

  Tier tier;
  WeightsBelow::Slots slots;
  WeightsBelow weights;
};

// What computes: the CPU, or a device.
struct Target {
  const Processor& ops;
  Device* device = nullptr;        // null: the CPU
  const Processor* cpu = nullptr;  // what the CPU beside a device computes with, where it may
  // Device::own_bytes before anything ran there: plans of a device count on it.
  uint64_t device_own_bytes = 0;
  uint64_t ops_bytes = 0;  // of the device's memory that the operations take besides what they
                           // compute with
  std::shared_ptr<MemoryBelow> below = {};  // of the last run
};

}  // namespace klotski
