#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// How near a memory is to the processor that computes with it, nearest first.
enum class TierKind : uint8_t {
  compute,  // a device's memory; where no device is, the program's own
  host,     // the program's own memory, where a device computes
  remote,   // memory of another machine
  disk,
};

inline constexpr size_t kTierKinds = static_cast<size_t>(TierKind::disk) + 1;

// One memory of a machine, and the processor that computes there, if one does. A second device is
// compute tier 1, the memory of a second NUMA node on a machine with a device is host tier 1.
struct TierId {
  TierKind kind = TierKind::compute;
  uint8_t number = 0;

  auto operator<=>(const TierId&) const = default;
};

inline constexpr TierId kComputeTier{TierKind::compute};
inline constexpr TierId kHostTier{TierKind::host};
inline constexpr TierId kDiskTier{TierKind::disk};

// "host", "compute 1": the first tier of a kind goes without its number.
std::string tier_name(TierId tier);
// The tier of that name; nothing where no tier is called so.
std::optional<TierId> tier_named(std::string_view name);

}  // namespace klotski
