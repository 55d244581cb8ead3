#include "planner/preview.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr int64_t kPasses = 8;
constexpr int64_t kKeptSpans = 20'000;

}  // namespace

Preview preview(const PredictionInputs& with, const Policy& policy, const PlannedWork& work) {
  PassSimulator simulator(with, policy, kKeptSpans);
  const int64_t together = std::min({work.sequences, work.at_once, policy.group.sequences()});
  PlannedWork planned = work;
  planned.encodes = with.model.encoder.has_value();
  std::vector<PassSequence> sequences(static_cast<size_t>(together), planned.new_sequence());
  PassForming(policy).admit(sequences, [](size_t) { return true; });
  simulator.play(plan_pass(policy, planned, sequences).shape);
  const UnitTable<int64_t> before = simulator.loads();
  for (PassSequence& sequence : sequences) {
    sequence.cached = work.prompt_tokens + work.generated_tokens / 2;
    sequence.pending = 1;
    sequence.encoded = 0;
  }
  const PassShape decoding = plan_pass(policy, planned, sequences).shape;
  for (int64_t pass = 0; pass < kPasses; ++pass) simulator.play(decoding);
  Preview result{.spans = simulator.spans(), .placement = {}};
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (const WeightUnit& unit : units_of(with.model, static_cast<UnitKind>(kind))) {
      const int64_t read = simulator.loads()[unit] - before[unit];
      const bool ever = simulator.loads()[unit] > 0;
      result.placement.push_back(
          {unit, ever ? std::max(0.0, 1.0 - static_cast<double>(read) / kPasses) : 0.0});
    }
  }
  return result;
}

}  // namespace klotski
