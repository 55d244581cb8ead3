#pragma once

#include <memory>

#include "device/device.h"

namespace klotski::cuda {

// Makes the process's context on a device that list_devices() found.
std::unique_ptr<Device> open(const DeviceInfo& info);

}  // namespace klotski::cuda
