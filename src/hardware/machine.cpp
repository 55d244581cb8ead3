#include "hardware/machine.h"

#include <algorithm>

namespace klotski {

namespace {

bool computes_at(const Machine& machine, TierId tier) {
  const std::vector<TierId>& all = machine.processors;
  return std::find(all.begin(), all.end(), tier) != all.end();
}

}  // namespace

std::vector<Lane> Machine::lanes() const {
  std::vector<Lane> lanes;
  for (const TierId tier : processors) {
    lanes.push_back(compute_lane(tier));
    if (tier.kind != TierKind::compute) continue;
    lanes.push_back(kv_in_lane(tier));
    lanes.push_back(kv_out_lane(tier));
  }
  for (const Link& link : links) {
    const Lane weights = weights_lane(link.from, link.to);
    lanes.push_back(weights);
    // Bytes of a file lie as the file has them; on their way to another memory they are put right.
    if (weights.kind == LaneKind::read && link.to.kind == TierKind::compute) {
      lanes.push_back(settle_lane(link.to));
    }
    if (!computes_at(*this, link.from) || !computes_at(*this, link.to)) continue;
    lanes.push_back(rows_lane(link.from, link.to));
    lanes.push_back(rows_lane(link.to, link.from));
  }
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

Machine cpu_over_disk() {
  return {.tiers = {kComputeTier, kDiskTier},
          .links = {{kDiskTier, kComputeTier}},
          .processors = {kComputeTier}};
}

Machine device_over_host() {
  return {.tiers = {kComputeTier, kHostTier, kDiskTier},
          .links = {{kHostTier, kComputeTier}, {kDiskTier, kHostTier}},
          .processors = {kComputeTier, kHostTier}};
}

}  // namespace klotski
