#pragma once

#include <cstddef>
#include <span>

#include "device/device.h"
#include "hardware/profile.h"
#include "model/description.h"
#include "probe/layer_parts.h"

namespace klotski {

// Measures the CPU on a machine whose device computes, with the operations and the memory of `cpu`:
// the curves of every kind of layer that `profile` has already, then how much an expert and copies
// to the device hold each other up. `there` is the device's memory that is copied to.
void measure_beside_device(const PartsBench& cpu, const ModelDescription& model, Device& device,
                           std::span<std::byte> there, Profile& profile);

}  // namespace klotski
