#pragma once

#include "engine/run_inputs.h"
#include "planner/choose_plan.h"
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

  // Inputs of plans of this model, with the machine's memory as it is now.
  PlanInputs inputs() const { return inputs(probed_.profile); }
  // Inputs of plans of this model on another machine.
  PlanInputs inputs(const Profile& profile) const {
    return {run_inputs(opened_.description, layouts_, target_, options_), profile, shares_};
  }
  PredictionInputs prediction_inputs() const {
    return prediction_inputs_of(opened_.description, layouts_, probed_.profile, shares_);
  }
  Prediction predict(const RunPlan& plan, const PlannedWork& work) const {
    return klotski::predict(prediction_inputs(), plan.policy, work);
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
