#pragma once

#include <memory>

#include "executor/weights_below.h"

namespace klotski {

// Host memory of a device's weights, keys and values, kept from run to run.
struct MemoryBelow {
  MemoryBelow(Device& device, uint64_t limit_bytes, const UnitLayouts& layouts,
              const WeightsBelow::Slots& weight_slots)
      : tier("RAM", limit_bytes), slots(weight_slots), weights(device, tier, layouts, slots) {}

  Tier tier;
  WeightsBelow::Slots slots;
  WeightsBelow weights;
};

// The processor that computes: the CPU, or a device.
struct Target {
  const Processor& ops;
  Device* device = nullptr;        // null: the CPU
  const Processor* cpu = nullptr;  // the CPU's processor on a machine with a device, where it may
                                   // compute
  // Device::own_bytes before anything ran there: plans of a device count on it.
  uint64_t device_own_bytes = 0;
  uint64_t ops_bytes = 0;  // bytes of the device that operations take besides those they compute
                           // with
  std::shared_ptr<MemoryBelow> below = {};  // the last run's
};

}  // namespace klotski
