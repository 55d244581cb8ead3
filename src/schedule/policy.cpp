#include "schedule/policy.h"

namespace klotski {

std::string_view precision_name(Precision precision) {
  return precision == Precision::f32 ? "f32" : "bf16";
}

Policy with_strategy(Policy policy, Strategy strategy) {
  policy.strategy = strategy;
  if (properties_of(strategy).one_micro_batch) policy.group.micro_batches = 1;
  return policy;
}

}  // namespace klotski
