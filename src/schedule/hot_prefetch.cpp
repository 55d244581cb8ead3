#include "schedule/batch_order.h"

namespace klotski {

namespace {

// Klotski's Figure 4(c): gate and experts are different layers. While attention runs, the gate and
// the hot experts come (equation 2); experts that a gate chooses beyond them are requested at once.
// Layers are still taken in step, and experts batch by batch.
class HotPrefetch : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    build.request(attention_unit(layer), LoadReason::certain);
    build.request_in_step(gate_unit(layer), LoadReason::certain);
    for (const ExpertId expert : build.context().hot(layer)) {
      if (!build.request_in_step(build.expert_of(layer, expert), LoadReason::prefetch)) return;
    }
  }

  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    run_experts_in_batch_order(build, layer, activated);
  }
};

}  // namespace

std::unique_ptr<Schedule> make_hot_prefetch() { return std::make_unique<HotPrefetch>(); }

}  // namespace klotski
