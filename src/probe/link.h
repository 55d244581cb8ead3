#pragma once

#include "device/device.h"
#include "hardware/profile.h"
#include "memory/tier.h"

namespace klotski {

// Seconds of copies of several sizes from pinned memory to the device. Takes the program's memory
// from `tier`; `there` is the device's memory that is copied to.
Curve measure_link(Device& device, Tier& tier, std::span<std::byte> there);

}  // namespace klotski
