#include "planner/preview.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr int64_t kPasses = 8;
constexpr int64_t kKeptSpans = 20'000;

PassShape shape_of(const Policy& policy, const PlannedWork& work, bool prompts) {
  const int64_t sequences = std::min({work.sequences, work.at_once, policy.group.sequences()});
  PassShape shape{.micro_batches = prompts ? std::min(policy.group.micro_batches, sequences)
                                           : policy.decode_batches(sequences),
                  .prompt_tokens = work.prompt_tokens};
  const double each = static_cast<double>(sequences) / static_cast<double>(shape.micro_batches);
  shape.logit_rows = each;
  if (prompts) {
    shape.prompt_rows = std::min(each * static_cast<double>(work.prompt_tokens),
                                 static_cast<double>(policy.group.micro_batch_rows));
  } else {
    shape.decoding_rows = each;
    shape.positions =
        static_cast<double>(work.prompt_tokens) + 0.5 * static_cast<double>(work.generated_tokens);
  }
  return shape;
}

}  // namespace

Preview preview(const Machinery& with, const Policy& policy, const PlannedWork& work) {
  PassSimulator simulator(with, policy, kKeptSpans);
  simulator.play(shape_of(policy, work, true));
  const std::map<WeightUnit, int64_t> before = simulator.loads();
  for (int64_t pass = 0; pass < kPasses; ++pass) simulator.play(shape_of(policy, work, false));
  Preview result{.spans = simulator.spans(), .placement = {}};
  const auto loads_of = [](const std::map<WeightUnit, int64_t>& loads, const WeightUnit& unit) {
    const auto found = loads.find(unit);
    return found == loads.end() ? int64_t{0} : found->second;
  };
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (const WeightUnit& unit : units_of(with.model, static_cast<UnitKind>(kind))) {
      const int64_t read = loads_of(simulator.loads(), unit) - loads_of(before, unit);
      const bool ever = loads_of(simulator.loads(), unit) > 0;
      result.placement.push_back(
          {unit, ever ? std::max(0.0, 1.0 - static_cast<double>(read) / kPasses) : 0.0});
    }
  }
  return result;
}

}  // namespace klotski
