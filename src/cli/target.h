#pragma once

#include <memory>
#include <string>

#include "cli/load.h"
#include "engine/run_plan.h"
#include "engine/target.h"

namespace klotski {

// A target, and the device behind it.
struct OpenedTarget {
  std::unique_ptr<Device> device;
  Target target;
};

// `device`: "cpu", "gpu", the number of a device, or "auto": a device where one can be used, else
// the CPU. `kernels`: "cpu" or "reference", where the CPU computes. Throws device_unavailable where
// a device is asked for and cannot be had.
std::shared_ptr<OpenedTarget> open_target(const std::string& device, const std::string& kernels);

// The model's profile on the target's device.
Probed probe_on_device(const OpenedModel& opened, const Target& target, const RunLimits& limits);

}  // namespace klotski
