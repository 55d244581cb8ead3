#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/pipeline.h"
#include "engine/target.h"
#include "memory/tier.h"
#include "planner/run_plan.h"

namespace klotski {

// A model laid out over the tiers by a plan, ready to run. No weight has been read when it is made:
// each is read when the pipeline first wants it.
class PreparedModel {
 public:
  // The references must live longer.
  // A target that is a device keeps its host memory for the next model of an equal plan.
  PreparedModel(const ModelDescription& model, const TensorSource& checkpoint, Target& target,
                RunPlan plan, const PipelineOptions& options = {});
  PreparedModel(const PreparedModel&) = delete;  // the pipeline refers to its parts
  PreparedModel& operator=(const PreparedModel&) = delete;

  const RunPlan& plan() const { return plan_; }
  const Policy& policy() const { return plan_.policy; }
  const Tier& compute_tier() const { return *compute_tier_; }
  // Host memory, where the target is a device.
  const HostTier* host() const { return host_.get(); }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  void take_host_memory(Target& target);

  UnitLayouts layouts_;
  RunPlan plan_;
  std::unique_ptr<Tier> compute_tier_;
  std::shared_ptr<HostTier> host_;
  std::vector<Reservation> reservations_;  // memory that is not taken as one piece
  std::unique_ptr<DeviceMemory> device_memory_;
  std::optional<ArenaUse> ops_arena_;  // a part of device_memory_
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace klotski
