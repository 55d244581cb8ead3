#include "schedule/batch_order.h"

#include <algorithm>

namespace klotski {

namespace {

bool chosen_from(const Activated& activated, size_t batch, ExpertId expert) {
  for (size_t k = batch; k < activated.size(); ++k) {
    if (std::binary_search(activated[k].begin(), activated[k].end(), expert)) return true;
  }
  return false;
}

}  // namespace

void run_experts_in_batch_order(FragmentBuilder& build, LayerId layer, const Activated& activated) {
  for (size_t k = 0; k < activated.size(); ++k) {
    const auto micro_batch = static_cast<int32_t>(k);
    for (const ExpertId expert : activated[k]) {
      const WeightUnit unit = build.expert_of(layer, expert);
      build.need(unit);
      build.expert(layer, expert, micro_batch);
      if (!chosen_from(activated, k + 1, expert)) build.done(unit);
    }
    build.combine(layer, micro_batch);
  }
  for (const WeightUnit& unchosen : build.requested(layer)) build.done(unchosen);
  build.done(gate_unit(layer));
}

}  // namespace klotski
