#include "probe/layer_parts.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "forward/layer.h"
#include "kv/paged_cache.h"
#include "probe/curve_timer.h"

namespace klotski {

namespace {

constexpr LayerId kOnly{0};  // a sample's layer

uint64_t float_bytes(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

std::shared_ptr<Buffer> random_rows(int64_t count, int64_t width) {
  auto rows = std::make_shared<Buffer>(count, width);
  uint32_t state = 1;
  for (float& value : rows->floats()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;  // from -1 to 1
  }
  return rows;
}

std::vector<int32_t> counted(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Rows of a sequence that has nothing in its cache yet, and that cache.
struct PromptRows {
  PromptRows(const ModelDescription& model, DType kv, int64_t rows)
      : hidden(random_rows(rows, model.hidden)),
        cache(model, {.type = kv,
                      .memory_bytes = static_cast<uint64_t>(PagedKvCache::pages_for(rows)) *
                                      PagedKvCache::page_bytes(model, kv)}) {
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    batch.append(0, tokens, rows, LogitsOf::none);
    if (!cache.reserve(sequence, rows)) {
      fail(ErrorKind::internal, "a cache made for {} rows has no room for them", rows);
    }
  }

  std::shared_ptr<Buffer> hidden;
  PagedKvCache cache;
  KvSequence sequence;
  Batch batch;
};

Curve time_attention_products(const PartsBench& bench, const Sample& sample,
                              RandomWeights& weights) {
  const ModelDescription& model = sample.model;
  const Attention& shape = model.layer(kOnly).attention;
  const DType kv = kv_type(bench.precision);
  const auto bytes = [&](int64_t rows) {
    const int64_t width = 4 * model.hidden + 2 * shape.query_width() + 2 * shape.kv_width();
    return float_bytes(rows * width) +
           static_cast<uint64_t>(PagedKvCache::pages_for(rows)) *
               PagedKvCache::page_bytes(model, kv) +
           cpu_scratch_bytes(rows, std::max(model.hidden, shape.query_width()), 1, shape.head_dim);
  };
  const auto make = [&](int64_t rows) -> std::function<void()> {
    const auto prompt = std::make_shared<PromptRows>(model, kv, rows);
    return [&, prompt] {
      const Arithmetic with{model, bench.ops, bench.precision};
      const WeightSet& set = weights.next();
      const Rows hidden = prompt->hidden->rows();
      AttentionInputs inputs = pre_attention(with, hidden, set, kOnly, prompt->batch);
      prompt->cache.write(prompt->sequence, kOnly, 0, inputs.keys.rows(), inputs.values.rows());
      post_attention(with, hidden, inputs.queries.rows(), set);
    };
  };
  return CurveTimer(bench.tier, bench.limits)(
      {.sizes = bench.row_counts(), .bytes = bytes, .make = make, .scale = sample.scale});
}

// Pages of keys and values in one memory, one after the other and again from the first.
class PageRing {
 public:
  PageRing(Tier& tier, DType type, int64_t width, uint64_t bytes)
      : type_(type),
        page_bytes_(static_cast<uint64_t>(kKvPageTokens * width * bytes_per_element(type))),
        memory_(tier, "keys and values", std::max<uint64_t>(bytes / page_bytes_, 1) * page_bytes_) {
    fill_random(memory_.bytes(), type);
  }

  // Makes room for caches of so many positions.
  void prepare(int64_t positions) {
    in_cache_ = static_cast<size_t>(kv_pages_for(positions));
    const size_t distinct = memory_.bytes().size() / page_bytes_;
    pages_.clear();
    for (size_t i = 0; i < distinct + in_cache_; ++i) {
      pages_.push_back(memory_.bytes().data() + i % distinct * page_bytes_);
    }
  }
  // Another cache each time.
  KvPages next() {
    const auto keys = turn();
    return {.keys = keys, .values = turn(), .type = type_, .page_tokens = kKvPageTokens};
  }

 private:
  std::span<const std::byte* const> turn() {
    first_ = (first_ + in_cache_) % (pages_.size() - in_cache_);
    return std::span(pages_).subspan(first_, in_cache_);
  }

  DType type_;
  uint64_t page_bytes_;
  Arena memory_;
  std::vector<const std::byte*> pages_;
  size_t in_cache_ = 0;
  size_t first_ = 0;
};

std::vector<int64_t> positions_up_to(int64_t most, const ModelDescription& model) {
  const int64_t bound = std::min(most, model.max_positions);
  std::vector<int64_t> sizes;
  for (int64_t size = std::min<int64_t>(16, bound); size <= bound; size *= 4) sizes.push_back(size);
  return sizes;
}

// Attention of `sequences` sequences of `tokens` rows each at the end of so many positions.
struct AttendCall {
  const PartsBench& bench;
  const Sample& sample;
  RandomWeights& weights;  // for sinks
  PageRing& ring;

  uint64_t bytes(int64_t sequences, int64_t tokens) const {
    const Attention& shape = sample.model.layer(kOnly).attention;
    return float_bytes(2 * sequences * tokens * shape.query_width()) +
           cpu_scratch_bytes(sequences * tokens, shape.query_width(), 1, shape.head_dim);
  }

  std::function<void()> make(int64_t sequences, int64_t tokens, int64_t positions) const {
    const int64_t width = sample.model.layer(kOnly).attention.query_width();
    const auto queries = random_rows(sequences * tokens, width);
    const auto output = std::make_shared<Buffer>(sequences * tokens, width);
    ring.prepare(positions);
    return [=, this] {
      std::vector<AttendingSequence> attending;
      for (int64_t s = 0; s < sequences; ++s) {
        const BatchSequence rows{.first_row = s * tokens, .tokens = tokens};
        attending.push_back(
            {output->rows(rows), queries->rows(rows), ring.next(), positions - tokens});
      }
      attention({sample.model, bench.ops, bench.precision}, attending, weights.next(), kOnly);
    };
  }
};

}  // namespace

Sample PartsBench::sample(const ModelDescription& model, LayerId layer, UnitKind kind) const {
  return sample_of(model, layer, kind, types, tier.limit_bytes() / 2);
}

RandomWeights PartsBench::weights(const Sample& sample) const {
  return RandomWeights(tier, sample.tensors(), types,
                       {.wanted = limits.weight_bytes, .most = tier.limit_bytes() / 2});
}

std::vector<int64_t> PartsBench::row_counts() const {
  std::vector<int64_t> counts;
  for (int64_t rows = 1; rows <= std::max<int64_t>(limits.most_rows, 1); rows *= 2) {
    counts.push_back(rows);
  }
  return counts;
}

void measure_attention(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                       LayerProfile& profile) {
  const Sample sample = bench.sample(model, layer, UnitKind::attention);
  RandomWeights weights = bench.weights(sample);
  weights.arrange(bench.ops, bench.precision);
  profile.attention_products = time_attention_products(bench, sample, weights);

  // Many sequences decode together; a single row would leave most of many threads idle.
  constexpr int64_t kSequences = 8;
  PageRing ring(bench.tier, kv_type(bench.precision),
                sample.model.layer(kOnly).attention.kv_width(),
                std::min(bench.limits.weight_bytes, bench.tier.limit_bytes() / 4));
  const AttendCall call{bench, sample, weights, ring};
  const CurveTimer time(bench.tier, bench.limits);
  profile.attend_decode =
      time({.sizes = positions_up_to(16384, model),
            .bytes = [&](int64_t) { return call.bytes(kSequences, 1); },
            .make = [&](int64_t positions) { return call.make(kSequences, 1, positions); },
            .scale = sample.scale / static_cast<double>(kSequences)});
  profile.attend_prefill = time({.sizes = positions_up_to(4096, model),
                                 .bytes = [&](int64_t tokens) { return call.bytes(1, tokens); },
                                 .make = [&](int64_t n) { return call.make(1, n, n); },
                                 .growth = 2.0,
                                 .scale = sample.scale});
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
  weights.arrange(bench.ops, bench.precision);
  const CurveTimer time(bench.tier, bench.limits);
  const auto bytes = [&](int64_t rows) {
    return float_bytes(rows * (model.hidden * (3 + slots) + part.experts)) +
           cpu_scratch_bytes(rows, model.hidden, shared_width, 1);
  };
  profile.route = time({.sizes = bench.row_counts(),
                        .bytes = bytes,
                        .make = [&](int64_t rows) -> std::function<void()> {
                          const auto hidden = random_rows(rows, model.hidden);
                          const auto normed = random_rows(rows, model.hidden);
                          return [&, hidden, normed] {
                            route(with, normed->rows(), hidden->rows(), weights.next(), kOnly);
                          };
                        }});
  profile.combine =
      time({.sizes = bench.row_counts(),
            .bytes = bytes,
            .make = [&](int64_t rows) -> std::function<void()> {
              const auto hidden = random_rows(rows, model.hidden);
              const auto normed = random_rows(rows, model.hidden);
              const auto outputs = random_rows(rows * slots, model.hidden);
              const std::vector<float> shares(static_cast<size_t>(rows * slots), 0.5f);
              return [&, hidden, normed, outputs, shares] {
                with.ops.combine(hidden->rows(), outputs->rows(), shares);
                add_shared_expert(with, hidden->rows(), normed->rows(), weights.next(), kOnly);
              };
            },
            .scale = sample.scale});
}

void measure_expert(const PartsBench& bench, const ModelDescription& whole, LayerId layer,
                    LayerProfile& profile) {
  const Sample sample = bench.sample(whole, layer, expert_unit(whole, layer, ExpertId(0)).kind);
  const ModelDescription& model = sample.model;
  const FeedForward& part = model.layer(kOnly).feed_forward;
  const Arithmetic with{model, bench.ops, bench.precision};
  RandomWeights weights = bench.weights(sample);
  const auto next_expert = [&]() -> ExpertWeights {
    const WeightSet& set = weights.next();
    if (!part.routed) return {set[Role::dense_gate], set[Role::dense_up], set[Role::dense_down]};
    return {set[Role::expert_gate], set[Role::expert_up], set[Role::expert_down]};
  };
  const SizedWork work{.sizes = bench.row_counts(),
                       .bytes =
                           [&](int64_t rows) {
                             return float_bytes(2 * rows * model.hidden) +
                                    cpu_scratch_bytes(rows, model.hidden, part.width, 1);
                           },
                       .make = [&](int64_t rows) -> std::function<void()> {
                         const auto in = random_rows(rows, model.hidden);
                         const auto out = random_rows(rows, model.hidden);
                         const std::vector<int32_t> all = counted(rows);
                         return [&, in, out, all] {
                           const ChosenExpert chosen{
                               .weights = next_expert(), .in_rows = all, .out_rows = all};
                           run_experts(with, out->rows(), in->rows(), std::span(&chosen, 1), kOnly);
                         };
                       },
                       .scale = sample.scale};
  const CurveTimer time(bench.tier, bench.limits);
  profile.expert = time(work);
  weights.arrange(bench.ops, bench.precision);
  profile.expert_arranged = time(work);
}

void measure_embedding(const PartsBench& bench, const ModelDescription& whole,
                       ModelProfile& profile) {
  const Sample sample = bench.sample(whole, LayerId(0), UnitKind::model);
  const ModelDescription& model = sample.model;
  const Arithmetic with{model, bench.ops, bench.precision};
  RandomWeights weights = bench.weights(sample);
  weights.arrange(bench.ops, bench.precision);
  const CurveTimer time(bench.tier, bench.limits);
  profile.embed =
      time({.sizes = bench.row_counts(),
            .bytes = [&](int64_t rows) { return float_bytes(rows * model.hidden); },
            .make = [&](int64_t rows) -> std::function<void()> {
              const auto hidden = random_rows(rows, model.hidden);
              std::vector<TokenId> tokens;
              for (int64_t i = 0; i < rows; ++i) {
                tokens.push_back(static_cast<TokenId>(i * 7919 % model.vocabulary));
              }
              return [&, hidden, tokens] { embed(with, hidden->rows(), weights.next(), tokens); };
            }});
  profile.logits = time({.sizes = bench.row_counts(),
                         .bytes =
                             [&](int64_t rows) {
                               return float_bytes(rows * (2 * model.hidden + model.vocabulary)) +
                                      cpu_scratch_bytes(rows, model.hidden, 1, 1);
                             },
                         .make = [&](int64_t rows) -> std::function<void()> {
                           const auto hidden = random_rows(rows, model.hidden);
                           const auto out = std::make_shared<Buffer>(rows, model.vocabulary);
                           const std::vector<int32_t> all = counted(rows);
                           return [&, hidden, out, all] {
                             logits(with, out->rows(), hidden->rows(), weights.next(), all);
                           };
                         },
                         .scale = sample.scale});
}

}  // namespace klotski
