#include "session/opened_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "base/error.h"
#include "base/numbers.h"
#include "kernels/cpu/cpu_processor.h"
#include "kernels/cuda_processor.h"
#include "memory/device_memory.h"

namespace klotski {

namespace {

constexpr int64_t kMostDeviceRows = 8192;         // most rows of one measured product
constexpr uint64_t kProbeDeviceBytes = 4 * kGiB;  // most device memory to measure in

OpenedTarget cpu_target(const std::string& kernels) {
  std::unique_ptr<const Processor> cpu;
  if (kernels == "reference") {
    cpu = std::make_unique<ReferenceProcessor>();
  } else {
    cpu = std::make_unique<CpuProcessor>();
  }
  const Processor& ops = *cpu;
  return {.device = {}, .cpu = std::move(cpu), .on_device = {}, .target = {.ops = ops}};
}

OpenedTarget device_target(int index) {
  std::unique_ptr<Device> device = open_device(index);
  const uint64_t own_bytes = device->own_bytes();
  // Two threads wait for the device all the time: one for its kernels, one for copies.
  auto cpu = std::make_unique<CpuProcessor>(std::max(1, usable_cpus() - 2));
  std::unique_ptr<const Processor> on_device = make_cuda_processor(*device);
  Target target{.ops = *on_device,
                .device = device.get(),
                .cpu = cpu.get(),
                .device_own_bytes = own_bytes,
                .ops_bytes = kCudaProductWorkspace};
  return {.device = std::move(device),
          .cpu = std::move(cpu),
          .on_device = std::move(on_device),
          .target = std::move(target)};
}

}  // namespace

OpenedTarget open_target(const std::string& device, const std::string& kernels,
                         const SessionEvents& events) {
  if (kernels == "reference" && device != "auto" && device != "cpu") {
    fail(ErrorKind::usage, "--kernels reference computes on the CPU, --device asks for {}",
         in_quotes(device));
  }
  if (device == "cpu" || kernels == "reference") return cpu_target(kernels);
  if (device == "gpu") return device_target(0);
  if (device != "auto") {
    const auto index = parse_int(device);
    if (!index || *index < 0 || *index > 1024) {
      fail(ErrorKind::usage, "--device: expected auto, cpu, gpu or a device's number, found {}",
           in_quotes(device));
    }
    return device_target(static_cast<int>(*index));
  }
  const DeviceList found = list_devices();
  if (found.devices.empty()) return cpu_target(kernels);
  try {
    return device_target(0);
  } catch (const Error& error) {
    const bool full = error.kind() == ErrorKind::does_not_fit;
    if (!full && error.kind() != ErrorKind::device_unavailable) throw;
    events.tell(Remark::Topic::computes_on_cpu,
                fmt::format("computing on the CPU: {}", one_line(error.what())));
    return cpu_target(kernels);
  }
}

Probed probe_on_device(const OpenedModel& opened, const Target& target, const RunLimits& limits) {
  ProbeLimits measured;
  measured.most_bytes = std::min(measured.most_bytes, memory_to_measure(limits.ram_bytes) / 2);
  measured.most_rows = kMostDeviceRows;
  const uint64_t vram = vram_limit(limits, *machine_memory(target, {}).device);
  const uint64_t own = target.device->own_bytes();
  // A power of two, so that a little more or less free memory finds the stored profile again.
  const uint64_t arena_bytes =
      std::min(kProbeDeviceBytes, std::bit_floor((vram - std::min(vram, own)) / 2));
  if (arena_bytes < 2 * target.ops_bytes) {
    fail(ErrorKind::does_not_fit, "measuring the device needs at least {} of VRAM, {} are left",
         format_bytes(own + 4 * target.ops_bytes), format_bytes(vram));
  }
  return probe({.model = opened.description,
                .checkpoint = opened.checkpoint,
                .ops = target.ops,
                .host = *target.cpu,
                .precision = limits.precision,
                .limits = measured,
                .device = target.device,
                .device_bytes = arena_bytes - target.ops_bytes - arena_bytes / 16,
                .cpu = target.cpu},
               [&](const ProbeSubject& subject) {
                 Tier tier("VRAM", arena_bytes);
                 DeviceMemory memory(*target.device, tier, arena_bytes);
                 const ArenaUse arena(target.ops, memory.take("measuring", arena_bytes));
                 return measure_profile(subject);
               });
}

}  // namespace klotski
