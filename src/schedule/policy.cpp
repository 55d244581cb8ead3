#include "schedule/policy.h"

#include <algorithm>

namespace klotski {

std::string_view precision_name(Precision precision) {
  return precision == Precision::f32 ? "f32" : "bf16";
}

std::vector<ExpertId> by_share(const std::vector<double>& shares) {
  std::vector<ExpertId> experts;
  for (size_t e = 0; e < shares.size(); ++e) experts.emplace_back(static_cast<int64_t>(e));
  std::stable_sort(experts.begin(), experts.end(), [&](ExpertId a, ExpertId b) {
    return shares[static_cast<size_t>(a.value)] > shares[static_cast<size_t>(b.value)];
  });
  return experts;
}

Policy with_strategy(Policy policy, Strategy strategy) {
  policy.strategy = strategy;
  if (properties_of(strategy).one_micro_batch) policy.group.micro_batches = 1;
  return policy;
}

}  // namespace klotski
