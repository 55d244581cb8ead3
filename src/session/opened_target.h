#pragma once

#include <memory>
#include <string>

#include "engine/run_inputs.h"
#include "engine/target.h"
#include "session/events.h"
#include "session/opened_model.h"

namespace klotski {

// A target, with the processors and, where it has one, the device behind it. All of them outlive
// the target, which refers to them.
struct OpenedTarget {
  std::unique_ptr<Device> device;
  std::unique_ptr<const Processor> cpu = {};
  std::unique_ptr<const Processor> on_device = {};  // null where the CPU is the target
  Target target;
};

// `device`: "cpu", "gpu", the number of a device, or "auto": a device where one can be used, else
// the CPU, with a remark where a device is there. `kernels`: "cpu" or "reference", where the CPU
// computes. Throws device_unavailable where a device is asked for and cannot be had.
OpenedTarget open_target(const std::string& device, const std::string& kernels,
                         const SessionEvents& events);

// The model's profile on the target's device.
Probed probe_on_device(const OpenedModel& opened, const Target& target, const RunLimits& limits);

}  // namespace klotski
