#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/tier.h"

namespace klotski {

// The work of a lane. Drawings show lanes in this order.
enum class LaneKind : uint8_t {
  compute,  // the processor of a tier computes
  copy,     // weights go from one memory to another
  rows,     // rows of a group, or results of them, go from one memory to another
  read,     // a disk is read for weights, whichever memory they go to
  settle,   // weights are moved to where the kernels want them, within a memory
  kv_in,    // spilled keys and values come to the stages of a compute tier
  kv_out,   // keys and values go from there to where they are spilled
};

// A resource that is busy by itself: one thing at a time happens on a lane. A lane is a value: each
// processor, link and disk of a machine has its own, and so a second device brings its lanes along.
struct Lane {
  LaneKind kind = LaneKind::compute;
  TierId from{};  // source of copies and rows; for other lanes equal to `at`
  TierId at{};    // where the work is done or the bytes arrive; for reads the disk

  auto operator<=>(const Lane&) const = default;

  // The lanes of a machine that has one tier of each kind. A machine without a device has only the
  // lanes in which no host tier takes part.
  static const Lane kCompute;
  static const Lane kCpu;  // the CPU on a machine with a device
  static const Lane kToDevice;
  static const Lane kRowsDown;
  static const Lane kRowsUp;
  static const Lane kDiskRead;
  static const Lane kHostCopy;
  static const Lane kKvIn;
  static const Lane kKvOut;
};

constexpr Lane compute_lane(TierId tier) { return {LaneKind::compute, tier, tier}; }
constexpr Lane copy_lane(TierId from, TierId to) { return {LaneKind::copy, from, to}; }
constexpr Lane rows_lane(TierId from, TierId to) { return {LaneKind::rows, from, to}; }
constexpr Lane read_lane(TierId disk) { return {LaneKind::read, disk, disk}; }
constexpr Lane settle_lane(TierId tier) { return {LaneKind::settle, tier, tier}; }
constexpr Lane kv_in_lane(TierId tier) { return {LaneKind::kv_in, tier, tier}; }
constexpr Lane kv_out_lane(TierId tier) { return {LaneKind::kv_out, tier, tier}; }

// The lane on which weights come from one tier to another.
constexpr Lane weights_lane(TierId from, TierId to) {
  return from.kind == TierKind::disk ? read_lane(from) : copy_lane(from, to);
}

inline constexpr Lane Lane::kCompute = compute_lane(kComputeTier);
inline constexpr Lane Lane::kCpu = compute_lane(kHostTier);
inline constexpr Lane Lane::kToDevice = copy_lane(kHostTier, kComputeTier);
inline constexpr Lane Lane::kRowsDown = rows_lane(kComputeTier, kHostTier);
inline constexpr Lane Lane::kRowsUp = rows_lane(kHostTier, kComputeTier);
inline constexpr Lane Lane::kDiskRead = read_lane(kDiskTier);
inline constexpr Lane Lane::kHostCopy = settle_lane(kComputeTier);
inline constexpr Lane Lane::kKvIn = kv_in_lane(kComputeTier);
inline constexpr Lane Lane::kKvOut = kv_out_lane(kComputeTier);

// "compute", "to device", "disk read"; for a second device "compute 1", "to device 1".
std::string lane_name(Lane lane);

}  // namespace klotski
