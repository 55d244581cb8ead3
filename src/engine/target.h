#pragma once

#include <memory>

#include "executor/host_slots.h"

namespace klotski {

// Host memory of a device's weights, keys and values, kept from run to run.
struct HostTier {
  HostTier(Device& device, uint64_t limit_bytes, const UnitLayouts& layouts,
           const HostSlots::Slots& weight_slots)
      : tier("RAM", limit_bytes), slots(weight_slots), weights(device, tier, layouts, slots) {}

  Tier tier;
  HostSlots::Slots slots;
  HostSlots weights;
};

// The processor that computes: the CPU, or a device.
struct Target {
  const Processor& ops;
  Device* device = nullptr;        // null: the CPU
  const Processor* cpu = nullptr;  // the CPU's, where it may compute for a device
  // Device::own_bytes before anything ran there: plans of a device count on it.
  uint64_t device_own_bytes = 0;
  uint64_t ops_bytes = 0;               // device memory of the operations besides their arena
  std::shared_ptr<HostTier> host = {};  // the last run's
};

}  // namespace klotski
