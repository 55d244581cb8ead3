#include "schedule/link_pace.h"

namespace klotski {

LinkPace::LinkPace(const ModelDescription& model, const Policy& policy,
                   const std::function<UnitFacts(const WeightUnit&)>& facts)
    : link_(weights_lane(policy.layout.compute().source, kComputeTier)),
      layers_(static_cast<double>(model.layer_count())) {
  const std::vector<WeightUnit> experts = units_of(model, UnitKind::expert);
  if (experts.empty()) return;
  const UnitFacts of_first = facts(experts.front());
  const bool from_memory = policy.layout.source_of(kComputeTier) != nullptr;
  expert_bytes_ = static_cast<double>(from_memory ? of_first.own_bytes : of_first.read_bytes);
}

void LinkPace::pass_over(const TimelineTotals& totals, int64_t rows) {
  TimelineTotals of_pass = totals;
  of_pass -= before_;
  before_ = totals;
  if (rows > kMostGuessedRows) return;
  pace_.layer_seconds = in_seconds(of_pass.lane(compute_lane(kComputeTier)).busy) / layers_;
  const LaneTotals link = of_pass.lane(link_);
  // A pass that brought next to nothing says little about the link.
  const auto bytes = static_cast<double>(link.bytes);
  if (bytes > 0 && bytes >= expert_bytes_)
    pace_.load_seconds = in_seconds(link.busy) * expert_bytes_ / bytes;
}

}  // namespace klotski
