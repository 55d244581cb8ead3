#include "schedule/batch_order.h"

namespace klotski {

namespace {

// FlexGen's block schedule as Klotski's Figure 4(b) applies it to experts: while attention runs,
// the whole expert layer comes, whichever experts the tokens will choose, and every batch of the
// group runs on it. Layers are taken in step (Algorithm 1, line 18): a layer begins to come when
// the layer before it is done, and its first gate waits for all of it.
class MultiBatch : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    build.request(attention_unit(layer), LoadReason::certain);
    build.request_in_step(gate_unit(layer), LoadReason::certain);
    const int64_t experts = build.context().model.layer(layer).feed_forward.experts;
    for (int64_t e = 0; e < experts; ++e) {
      if (!build.request_in_step(build.expert_of(layer, ExpertId(e)), LoadReason::certain)) return;
    }
  }

  void gate(FragmentBuilder& build, LayerId layer, int32_t micro_batch) override {
    build.gate(layer, micro_batch, build.requested(layer));
  }

  void gate_finished(FragmentBuilder&, LayerId, int32_t, const std::vector<ExpertId>&) override {}

  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    run_experts_in_batch_order(build, layer, activated);
  }
};

}  // namespace

std::unique_ptr<Schedule> make_multi_batch() { return std::make_unique<MultiBatch>(); }

}  // namespace klotski
