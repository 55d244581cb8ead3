#include "probe/layer_parts.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "forward/layer.h"
#include "kernels/cpu/kernels.h"
#include "probe/curve_timer.h"
#include "probe/rows.h"

namespace klotski {

ProbeLimits beyond_caches(const ProbeLimits& limits) {
  ProbeLimits reached = limits;
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0 && limits.weight_bytes > 0) {
    // Several times a cache's size: with little more, the cache still finds some of the weights
    // each time.
    reached.weight_bytes = std::max(limits.weight_bytes, 6 * static_cast<uint64_t>(bytes));
  }
#endif
  return reached;
}

Sample PartsBench::sample(const ModelDescription& model, LayerId layer, UnitKind kind) const {
  return sample_of(model, layer, kind, types, tier.limit_bytes() / 2);
}

RandomWeights PartsBench::weights(const Sample& sample) const {
  return RandomWeights(tier, ops, sample.tensors(), types,
                       {.wanted = limits.weight_bytes, .most = tier.limit_bytes() / 2});
}

std::vector<int64_t> PartsBench::row_counts() const {
  std::vector<int64_t> counts;
  for (int64_t rows = 1; rows <= std::max<int64_t>(limits.most_rows, 1); rows *= 2) {
    counts.push_back(rows);
  }
  return counts;
}

std::vector<int64_t> PartsBench::expert_row_counts() const {
  std::vector<int64_t> counts;
  for (const int64_t rows : row_counts()) {
    counts.push_back(rows);
    const bool full = rows == cpu::kBlockRows || rows == 2 * cpu::kBlockRows;
    if (full && rows < limits.most_rows && ops.memory.readable) counts.push_back(rows + 1);
  }
  return counts;
}

void measure_gate(const PartsBench& bench, const ModelDescription& whole, LayerId layer,
                  LayerProfile& profile) {
  const Sample sample = bench.sample(whole, layer, UnitKind::gate);
  const ModelDescription& model = sample.model;
  const FeedForward& part = model.layer(kOnly).feed_forward;
  const int64_t slots = part.routed ? part.router.top_k : 1;
  const int64_t shared_width = part.shared ? part.shared->width : 1;
  const Arithmetic with{model, bench.ops, bench.precision};
  RandomWeights weights = bench.weights(sample);
  weights.arrange(bench.precision);
  const CurveTimer time(bench.tier, bench.limits, bench.ops);
  const auto bytes = [&](int64_t rows) {
    return float_bytes(rows * (model.hidden * (3 + slots) + part.experts)) +
           bench.ops.scratch_bytes(
               {.rows = rows, .in_width = model.hidden, .expert_width = shared_width});
  };
  profile.route = time({.sizes = bench.row_counts(),
                        .bytes = bytes,
                        .make = [&](int64_t rows) -> std::function<void()> {
                          const auto hidden = random_rows(bench.ops, rows, model.hidden);
                          const auto normed = random_rows(bench.ops, rows, model.hidden);
                          return [&, hidden, normed] {
                            Routing routing =
                                route(with, normed->rows(), hidden->rows(), weights.next(), kOnly);
                            bench.ops.memory.finish();
                            read_choices(routing);
                          };
                        }});
  profile.combine =
      time({.sizes = bench.row_counts(),
            .bytes = bytes,
            .make = [&](int64_t rows) -> std::function<void()> {
              const auto hidden = random_rows(bench.ops, rows, model.hidden);
              const auto normed = random_rows(bench.ops, rows, model.hidden);
              const auto outputs = random_rows(bench.ops, rows * slots, model.hidden);
              const auto shares = random_rows(bench.ops, rows, slots);
              return [&, hidden, normed, outputs, shares] {
                add_shared_expert(with, hidden->rows(), normed->rows(), weights.next(), kOnly);
                with.ops.combine(hidden->rows(), outputs->rows(), shares->floats());
              };
            },
            .scale = sample.scale});
}

void measure_embedding(const PartsBench& bench, const ModelDescription& whole,
                       ModelProfile& profile) {
  const Sample sample = bench.sample(whole, LayerId(0), UnitKind::model);
  const ModelDescription& model = sample.model;
  const Arithmetic with{model, bench.ops, bench.precision};
  RandomWeights weights = bench.weights(sample);
  weights.arrange(bench.precision);
  const CurveTimer time(bench.tier, bench.limits, bench.ops);
  profile.embed = time({.sizes = bench.row_counts(),
                        .bytes = [&](int64_t rows) { return float_bytes(rows * model.hidden); },
                        .make = [&](int64_t rows) -> std::function<void()> {
                          const auto hidden = random_rows(bench.ops, rows, model.hidden);
                          std::vector<TokenId> tokens;
                          std::vector<int32_t> positions;
                          for (int64_t i = 0; i < rows; ++i) {
                            tokens.push_back(static_cast<TokenId>(i * 7919 % model.vocabulary));
                            positions.push_back(static_cast<int32_t>(i));
                          }
                          return [&, hidden, tokens, positions] {
                            embed(with, hidden->rows(), weights.next(), tokens, positions);
                          };
                        }});
  profile.logits =
      time({.sizes = bench.row_counts(),
            .bytes =
                [&](int64_t rows) {
                  return float_bytes(rows * (2 * model.hidden + model.vocabulary)) +
                         bench.ops.scratch_bytes({.rows = rows, .in_width = model.hidden});
                },
            .make = [&](int64_t rows) -> std::function<void()> {
              const auto hidden = random_rows(bench.ops, rows, model.hidden);
              const auto out = std::make_shared<Buffer>(bench.ops, rows, model.vocabulary);
              const std::vector<int32_t> all = counted(rows);
              return [&, hidden, out, all] {
                logits(with, out->rows(), hidden->rows(), weights.next(), all);
              };
            },
            .scale = sample.scale});
}

}  // namespace klotski
