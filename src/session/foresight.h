#pragma once

#include "engine/choose_plan.h"
#include "session/opened_target.h"

namespace klotski {

// Plans and predictions for a model on this machine: the machine's measured rates, and how often
// experts are chosen.
class Foresight {
 public:
  // Measures the machine unless that was done before; throws does_not_fit where there is too little
  // memory to measure in. Model and target must live longer.
  Foresight(const OpenedModel& opened, const Target& target, const RunLimits& limits,
            const PipelineOptions& options);

  const Probed& probed() const { return probed_; }
  const UnitLayouts& layouts() const { return layouts_; }
  // Takes experts to be as popular as the table has seen them; null: all equally.
  void assume_popularity(const CorrelationTable* table);

  PlanningGround ground() const { return ground(probed_.profile); }
  // Ground for plans of this model on another machine.
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
