#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "forward/layer.h"
#include "probe/layer_parts.h"
#include "probe/rows.h"

namespace klotski {

ExpertPart::ExpertPart(const PartsBench& bench, const ModelDescription& model, LayerId layer)
    : bench_(bench),
      sample_(bench.sample(model, layer, expert_unit(model, layer, ExpertId(0)).kind)),
      weights_(bench.weights(sample_)) {}

uint64_t ExpertPart::bytes(int64_t rows) const {
  const int64_t hidden = sample_.model.hidden;
  const int64_t width = sample_.model.layer(kOnly).feed_forward.width;
  const MostWork most{.rows = rows, .in_width = hidden, .expert_width = width};
  return float_bytes(2 * rows * hidden) + bench_.ops.scratch_bytes(most) +
         bench_.ops.expansion_bytes(most, bench_.precision, bench_.types);
}

std::function<void()> ExpertPart::call(int64_t rows) {
  const auto in = random_rows(bench_.ops, rows, sample_.model.hidden);
  const auto out = random_rows(bench_.ops, rows, sample_.model.hidden);
  const auto all =
      std::make_shared<List<int32_t>>(bench_.ops, std::span<const int32_t>(counted(rows)));
  return [this, in, out, all] {
    const ModelDescription& model = sample_.model;
    const bool routed = model.layer(kOnly).feed_forward.routed;
    const ChosenExpert chosen{.weights = expert_in(weights_.next(), routed),
                              .in_rows = all->span(),
                              .out_rows = all->span()};
    run_experts({model, bench_.ops, bench_.precision}, out->rows(), in->rows(),
                std::span(&chosen, 1), kOnly);
  };
}

Curve ExpertPart::time() {
  return CurveTimer(bench_.tier, bench_.limits,
                    bench_.ops)({.sizes = bench_.expert_row_counts(),
                                 .bytes = [this](int64_t rows) { return bytes(rows); },
                                 .make = [this](int64_t rows) { return call(rows); },
                                 .scale = sample_.scale});
}

void measure_expert(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                    LayerProfile& profile) {
  ExpertPart part(bench, model, layer);
  profile.expert = part.time();
  if (!bench.ops.memory.readable) {  // a device has no other order
    profile.expert_arranged = profile.expert;
    return;
  }
  part.arrange();
  profile.expert_arranged = part.time();
}

}  // namespace klotski
