#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "forward/layer.h"
#include "probe/layer_parts.h"
#include "probe/rows.h"

namespace klotski {

namespace {

// Experts that a device computes in one call, at most: more hide launches no better.
constexpr int64_t kMostExperts = 8;
// Rows of all experts of a call, unless a single one has more: with hundreds of rows arithmetic
// takes the time, not launches.
constexpr int64_t kMostRowsOfCall = 512;

int64_t most_experts(const PartsBench& bench, const ModelDescription& model, LayerId layer) {
  const FeedForward& part = model.layer(layer).feed_forward;
  if (bench.ops.memory.readable || !part.routed) return 1;
  const std::vector<TensorSpec> tensors =
      unit_tensors(model, expert_unit(model, layer, ExpertId(0)));
  const uint64_t expert = std::max<uint64_t>(weight_bytes(tensors, bench.types), 1);
  return std::clamp(static_cast<int64_t>(kJoinedExpertBytes / expert), int64_t{1},
                    std::min(kMostExperts, part.experts));
}

}  // namespace

ExpertPart::ExpertPart(const PartsBench& bench, const ModelDescription& model, LayerId layer)
    : bench_(bench),
      sample_(bench.sample(model, layer, expert_unit(model, layer, ExpertId(0)).kind)),
      weights_(bench.weights(sample_)),
      most_experts_(most_experts(bench, model, layer)) {}

int64_t ExpertPart::experts_of_call(int64_t rows) const {
  return std::clamp(kMostRowsOfCall / rows, int64_t{1}, most_experts_);
}

uint64_t ExpertPart::bytes(int64_t rows) const {
  const int64_t experts = experts_of_call(rows);
  const int64_t hidden = sample_.model.hidden;
  const int64_t width = sample_.model.layer(kOnly).feed_forward.width;
  const MostWork most{.rows = rows, .choices = experts, .in_width = hidden, .expert_width = width};
  return float_bytes((1 + experts) * rows * hidden) + bench_.ops.scratch_bytes(most) +
         bench_.ops.expansion_bytes(most, bench_.precision, bench_.types);
}

std::function<void()> ExpertPart::call(int64_t rows) {
  const int64_t experts = experts_of_call(rows);
  const auto in = random_rows(bench_.ops, rows, sample_.model.hidden);
  const auto out = random_rows(bench_.ops, experts * rows, sample_.model.hidden);
  const auto all = std::make_shared<List<int32_t>>(
      bench_.ops, std::span<const int32_t>(counted(experts * rows)));
  return [this, in, out, all, rows, experts] {
    const ModelDescription& model = sample_.model;
    const bool routed = model.layer(kOnly).feed_forward.routed;
    std::vector<ChosenExpert> chosen;
    for (int64_t i = 0; i < experts; ++i) {
      const auto first = static_cast<size_t>(i * rows);
      const auto count = static_cast<size_t>(rows);
      chosen.push_back({.weights = expert_in(weights_.next(), routed),
                        .in_rows = all->span().first(count),
                        .out_rows = all->span().subspan(first, count)});
    }
    run_experts({model, bench_.ops, bench_.precision}, out->rows(), in->rows(), chosen, kOnly);
  };
}

Curve ExpertPart::time() {
  const Curve of_calls = CurveTimer(bench_.tier, bench_.limits, bench_.ops)(
      {.sizes = bench_.expert_row_counts(),
       .bytes = [this](int64_t rows) { return bytes(rows); },
       .make = [this](int64_t rows) { return call(rows); },
       .scale = sample_.scale});
  std::vector<double> seconds(of_calls.seconds().begin(), of_calls.seconds().end());
  for (size_t i = 0; i < seconds.size(); ++i) {
    const auto rows = static_cast<int64_t>(of_calls.sizes()[i]);
    seconds[i] /= static_cast<double>(experts_of_call(rows));
  }
  return {std::vector<double>(of_calls.sizes().begin(), of_calls.sizes().end()),
          std::move(seconds)};
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
