#pragma once

// Helpers of the tests of this folder: a machine of round numbers.

#include "planner/prediction.h"
#include "schedule/testing.h"

namespace klotski {

inline constexpr double kMillisecond = 1e-3;

// Work that takes as long for many rows as for one, or grows with them.
inline Curve constant(double seconds) { return Curve({1.0, 1e6}, {seconds, seconds}); }
inline Curve growing(double seconds_a_row) {
  return Curve({1.0, 1e6}, {seconds_a_row, seconds_a_row * 1e6});
}

// A machine that reads a byte in a nanosecond, and layers whose experts take a millisecond.
inline Profile plain_profile(const ModelDescription& model) {
  Profile profile;
  profile.machine.cpu().memory_bytes_per_second = 1e12;
  profile.machine.disk().bytes_per_second = 1e9;
  LayerProfile layer;
  layer.attention_products = constant(kMillisecond);
  layer.attend_decode = constant(1e-9);
  layer.attend_prefill = constant(1e-9);
  layer.route = constant(1e-9);
  layer.expert = constant(kMillisecond);
  layer.expert_arranged = constant(kMillisecond);
  layer.combine = constant(1e-9);
  profile.model.kinds = {layer};
  profile.model.kind_of_layer.assign(model.layers.size(), 0);
  profile.model.embed = constant(1e-9);
  profile.model.logits = constant(1e-9);
  return profile;
}

inline Policy resident_policy(const ModelDescription& model) {
  Policy policy;
  policy.group.micro_batch = 4;
  policy.group.micro_batches = 2;
  policy.group.micro_batch_rows = 64;
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    policy.layout.compute().slots[kind] =
        static_cast<int64_t>(units_of(model, static_cast<UnitKind>(kind)).size());
  }
  return policy;
}

struct Bench {
  ModelDescription model = shape_of(4, 8, 2);
  Profile profile = plain_profile(model);
  ExpertShares shares{model};
  uint64_t unit_bytes = 1'000'000;  // a millisecond of reading

  PredictionInputs prediction_inputs() const {
    return {.model = model,
            .profile = profile,
            .facts =
                [this](const WeightUnit&) {
                  return UnitFacts{unit_bytes, false};
                },
            .shares = shares};
  }
};

}  // namespace klotski
