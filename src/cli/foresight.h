#pragma once

#include "cli/load.h"
#include "cli/target.h"
#include "engine/choose_plan.h"
#include "engine/pipeline.h"

namespace klotski {

// Plans and predictions for a model on this machine: the machine's measured rates, and how often
// experts are chosen.
class Foresight {
 public:
  // Measures the machine unless that was done before. The model must live longer.
  Foresight(const OpenedModel& opened, const Target& target, const RunLimits& limits,
            const PipelineOptions& options);

  const Probed& probed() const { return probed_; }
  const UnitLayouts& layouts() const { return layouts_; }
  // How often experts are chosen, where that was seen.
  void learn(const CorrelationTable& table);

  PlanningGround ground() const { return ground(probed_.profile); }
  // The same model on another machine.
  PlanningGround ground(const Profile& profile) const {
    return {opened_.description, layouts_, target_, profile, shares_, options_};
  }
  Prediction predict(const RunPlan& plan, const PlannedWork& work) const {
    return klotski::predict(ground().machinery(), plan.policy, work);
  }

 private:
  const OpenedModel& opened_;
  const Target& target_;
  PipelineOptions options_;
  UnitLayouts layouts_;
  ExpertShares shares_;
  Probed probed_;
};

}  // namespace klotski
