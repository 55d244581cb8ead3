#include "timeline/lane.h"

#include <fmt/format.h>

#include <string_view>

namespace klotski {

namespace {

// "KV in", and "KV in 1" for the second tier of a kind.
std::string numbered(std::string_view name, TierId tier) {
  return tier.number == 0 ? std::string(name) : fmt::format("{} {}", name, tier.number);
}

bool between(const Lane& lane, TierKind from, TierKind to) {
  return lane.from.kind == from && lane.at.kind == to;
}

std::string copy_name(const Lane& lane) {
  if (between(lane, TierKind::host, TierKind::compute) && lane.from == kHostTier) {
    return numbered("to device", lane.at);
  }
  return fmt::format("{} to {}", tier_name(lane.from), tier_name(lane.at));
}

std::string rows_name(const Lane& lane) {
  if (between(lane, TierKind::compute, TierKind::host) && lane.at == kHostTier) {
    return numbered("rows down", lane.from);
  }
  if (between(lane, TierKind::host, TierKind::compute) && lane.from == kHostTier) {
    return numbered("rows up", lane.at);
  }
  return fmt::format("rows {} to {}", tier_name(lane.from), tier_name(lane.at));
}

}  // namespace

std::string lane_name(Lane lane) {
  switch (lane.kind) {
    case LaneKind::compute:
      return lane.at.kind == TierKind::host ? numbered("CPU", lane.at) : tier_name(lane.at);
    case LaneKind::copy:
      return copy_name(lane);
    case LaneKind::rows:
      return rows_name(lane);
    case LaneKind::read:
      return tier_name(lane.at) + " read";
    case LaneKind::settle:
      return numbered("host copy", lane.at);
    case LaneKind::kv_in:
      return numbered("KV in", lane.at);
    case LaneKind::kv_out:
      return numbered("KV out", lane.at);
  }
  return "?";
}

}  // namespace klotski
