#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/foresight.h"
#include "planner/block_model.h"

namespace klotski {

// One thing that was decided, and why not otherwise.
struct Reason {
  std::string what;
  std::string chosen;
  std::string why;
};

// What a change of machine or model would give.
struct Relief {
  std::string change;
  double tokens_per_second = 0;
};

// The lane that has the least time to spare.
Lane binding_lane(const TimelineTotals& totals);

// A plan for a workload, with what it rests on.
class Planning {
 public:
  // The model must live longer. With a table experts are taken to be as popular as it saw them.
  Planning(const OpenedModel& opened, const Target& target, const RunLimits& limits,
           const PipelineOptions& options, const Workload& workload,
           const std::optional<CorrelationTable>& table);

  const ModelDescription& model() const { return opened_.description; }
  const Workload& workload() const { return workload_; }
  const Probed& probed() const { return foresight_.probed(); }
  const RunPlan& run() const { return chosen_.run; }
  PlannedWork work() const;  // as it was simulated for the chosen plan
  const std::vector<Candidate>& candidates() const { return chosen_.candidates; }
  const Prediction& prediction() const { return chosen_.candidates.front().prediction; }
  Machinery machinery() const { return foresight_.ground().machinery(); }

  std::vector<Reason> reasons() const;
  const std::vector<Relief>& reliefs() const { return reliefs_; }
  // Times of a routed layer while the group decodes, for the papers' models.
  std::optional<BlockModel> block() const;

 private:
  std::vector<Relief> find_reliefs() const;
  double rate_on(const Profile& profile, const RunLimits& limits) const;
  double rate_with_small_experts() const;

  const OpenedModel& opened_;
  RunLimits limits_;
  Workload workload_;
  Foresight foresight_;
  ChosenPlan chosen_;
  std::vector<Relief> reliefs_;
};

}  // namespace klotski
