#pragma once

#include <memory>
#include <vector>

#include "engine/pipeline.h"
#include "engine/run_plan.h"
#include "memory/tier.h"

namespace klotski {

// A model laid out over the tiers by a plan, ready to run. No weight has been read when it is made:
// each is read when the pipeline first wants it.
class PreparedModel {
 public:
  // The references must live longer.
  PreparedModel(const ModelDescription& model, const Checkpoint& checkpoint, const Ops& ops,
                RunPlan plan, const PipelineOptions& options = {});
  PreparedModel(const PreparedModel&) = delete;  // the pipeline refers to its parts
  PreparedModel& operator=(const PreparedModel&) = delete;

  const RunPlan& plan() const { return plan_; }
  const Policy& policy() const { return plan_.policy; }
  const Tier& compute_tier() const { return *compute_tier_; }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  UnitLayouts layouts_;
  RunPlan plan_;
  std::unique_ptr<Tier> compute_tier_;
  std::vector<Reservation> reservations_;  // of what is not taken as one piece of memory
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace klotski
