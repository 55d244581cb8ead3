#pragma once

#include <cstddef>
#include <string_view>

namespace klotski {

// What can be busy by itself: one thing at a time happens on a lane. Drawings show lanes in this
// order.
enum class Lane {
  compute,    // where the compute tier is: the CPU, or a device
  cpu,        // what the CPU computes beside a device
  to_device,  // weights
  rows_down,  // rows from a device to the CPU
  rows_up,    // and their results back
  disk_read,
  host_copy,
  kv_in,
  kv_out,
  count_
};

inline constexpr size_t kLaneCount = static_cast<size_t>(Lane::count_);

constexpr size_t lane_index(Lane lane) { return static_cast<size_t>(lane); }

constexpr std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::cpu:
      return "CPU";
    case Lane::rows_down:
      return "rows down";
    case Lane::rows_up:
      return "rows up";
    case Lane::to_device:
      return "to device";
    case Lane::disk_read:
      return "disk read";
    case Lane::host_copy:
      return "host copy";
    case Lane::kv_in:
      return "KV in";
    case Lane::kv_out:
      return "KV out";
    case Lane::count_:
      break;
  }
  return "?";
}

}  // namespace klotski
