#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "forward/layer.h"
#include "kv/paged_cache.h"
#include "probe/curve_timer.h"
#include "probe/layer_parts.h"
#include "probe/ops_arena.h"
#include "probe/rows.h"

namespace klotski {

namespace {

// Rows of a sequence that has nothing in its cache yet, and that cache.
struct PromptRows {
  PromptRows(const PartsBench& bench, const ModelDescription& model, int64_t rows)
      : hidden(random_rows(bench.ops, rows, model.hidden)),
        attended(random_rows(bench.ops, rows, model.layer(kOnly).attention.output_width())),
        memory(bench.ops, static_cast<int64_t>(kv_bytes(model, kv_type(bench.precision), rows))),
        states(bench.ops, static_cast<int64_t>(SequenceStates::sequence_bytes(model))),
        cache(model,
              {.type = kv_type(bench.precision),
               .memory_bytes = memory.span().size(),
               .memory = memory.span().data(),
               .states = {.memory_bytes = states.span().size(), .memory = states.span().data()}}) {
    const std::vector<TokenId> tokens(static_cast<size_t>(rows));
    batch.append(0, tokens, rows, LogitsOf::none);
    if (!cache.reserve(sequence, rows)) {
      fail(ErrorKind::internal, "a cache made for {} rows has no room for them", rows);
    }
  }

  static uint64_t kv_bytes(const ModelDescription& model, DType kv, int64_t rows) {
    return static_cast<uint64_t>(PagedKvCache::pages_for(rows)) *
           PagedKvCache::page_bytes(model, kv);
  }
  static uint64_t cache_bytes(const ModelDescription& model, DType kv, int64_t rows) {
    return kv_bytes(model, kv, rows) + SequenceStates::sequence_bytes(model);
  }

  std::shared_ptr<Buffer> hidden;
  std::shared_ptr<Buffer> attended;
  List<std::byte> memory;
  List<std::byte> states;
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
    const int64_t width =
        4 * model.hidden + shape.input_width() + shape.output_width() + shape.temporary_width();
    return float_bytes(rows * width) + PromptRows::cache_bytes(model, kv, rows) +
           bench.ops.scratch_bytes({.rows = rows,
                                    .in_width = std::max(model.hidden, shape.widest_projected()),
                                    .head_dim = shape.query_head_width()});
  };
  const auto make = [&](int64_t rows) -> std::function<void()> {
    const Arithmetic with{model, bench.ops, bench.precision};
    const auto prompt = std::make_shared<PromptRows>(bench, model, rows);
    const auto rotation = std::make_shared<Rotation>(rotation_of(with, prompt->batch));
    return [&, with, prompt, rotation] {
      const WeightSet& set = weights.next();
      const Rows hidden = prompt->hidden->rows();
      AttentionInputs inputs = pre_attention(with, hidden, set, kOnly, *rotation);
      const KvView view = prompt->cache.view(prompt->sequence, kOnly);
      const AttendingSequence added{{}, inputs.rows(), view.cache(), 0};
      keep(with, std::span(&added, 1), kOnly);
      post_attention(with, hidden, prompt->attended->rows(), set, kOnly);
    };
  };
  return CurveTimer(bench.tier, bench.limits, bench.ops)(
      {.sizes = bench.row_counts(), .bytes = bytes, .make = make, .scale = sample.scale});
}

// Pages of a layer's cache in one memory, each with room for the widest part, used one after the
// other and again from the first; and states behind them, used in turn as well.
class PageRing {
 public:
  PageRing(const PartsBench& bench, const CacheLayout& layout, uint64_t bytes)
      : type_(kv_type(bench.precision)),
        parts_(layout.parts.size()),
        page_bytes_(
            static_cast<uint64_t>(kKvPageTokens * widest(layout) * bytes_per_element(type_))),
        state_bytes_(layout.state_bytes),
        states_(state_bytes_ == 0 ? 0 : std::max<uint64_t>(bytes / state_bytes_, kLeastStates)),
        pages_bytes_(states_ > 0 ? MemoryPages::whole_lines(page_bytes_)
                                 : std::max<uint64_t>(bytes / page_bytes_, 1) * page_bytes_),
        memory_(bench.tier, bench.ops, "keys and values", pages_bytes_ + states_ * state_bytes_) {
    memory_.fill_random(memory_.bytes().first(pages_bytes_), type_);
    memory_.fill_random(memory_.bytes().subspan(pages_bytes_), DType::F32);
  }

  // Makes room for caches of `positions` positions.
  void prepare(int64_t positions) {
    in_cache_ = static_cast<size_t>(kv_pages_for(positions));
    const size_t distinct = pages_bytes_ / page_bytes_;
    pages_.clear();
    for (size_t i = 0; i < distinct + in_cache_; ++i) {
      pages_.push_back(memory_.bytes().data() + i % distinct * page_bytes_);
    }
  }
  // A cache of the next pages each time.
  LayerCache next() {
    LayerCache cache{.type = type_, .page_tokens = kKvPageTokens};
    for (size_t part = 0; part < parts_; ++part) cache.parts.push_back(turn());
    if (states_ > 0) {
      cache.state = next_state();
      cache.next_state = next_state();
    }
    return cache;
  }

 private:
  static int64_t widest(const CacheLayout& layout) {
    int64_t width = 1;
    for (const RowPart& part : layout.parts) width = std::max(width, part.width);
    return width;
  }
  std::span<std::byte* const> turn() {
    first_ = (first_ + in_cache_) % (pages_.size() - in_cache_);
    return std::span(pages_).subspan(first_, in_cache_);
  }
  std::span<std::byte> next_state() {
    const std::span<std::byte> states = memory_.bytes().subspan(pages_bytes_);
    return states.subspan(state_++ % states_ * state_bytes_, state_bytes_);
  }

  static constexpr uint64_t kLeastStates = 2;  // one that is read and one that is written

  DType type_;
  size_t parts_;
  uint64_t page_bytes_;
  uint64_t state_bytes_;
  uint64_t states_;       // number of states
  uint64_t pages_bytes_;  // bytes of all pages
  OpsArena memory_;
  std::vector<std::byte*> pages_;
  size_t in_cache_ = 0;
  size_t first_ = 0;
  uint64_t state_ = 0;  // states that were used so far
};

// Positions from 16 on, each `factor` times the one before.
std::vector<int64_t> positions_up_to(int64_t most, int64_t factor, const ModelDescription& model) {
  const int64_t bound = std::min(most, model.max_positions);
  std::vector<int64_t> sizes;
  for (int64_t size = std::min<int64_t>(16, bound); size <= bound; size *= factor)
    sizes.push_back(size);
  return sizes;
}

// Attention of `sequences` sequences of `tokens` rows each at the end of `positions` positions. The
// inputs that a cache keeps are in it already: only the remaining inputs are made.
struct AttendCall {
  const PartsBench& bench;
  const Sample& sample;
  RandomWeights& weights;  // sinks
  PageRing& ring;

  uint64_t bytes(int64_t sequences, int64_t tokens) const {
    const Attention& shape = sample.model.layer(kOnly).attention;
    return float_bytes(sequences * tokens *
                       (query_width(shape) + shape.output_width() + shape.temporary_width())) +
           bench.ops.scratch_bytes({.rows = sequences * tokens,
                                    .in_width = shape.projected_width(),
                                    .head_dim = shape.query_head_width()});
  }

  static int64_t query_width(const Attention& shape) {
    int64_t width = 0;
    for (const RowPart& part : shape.queries()) width += part.width;
    return width;
  }

  std::function<void()> make(int64_t sequences, int64_t tokens, int64_t positions) const {
    const Attention& shape = sample.model.layer(kOnly).attention;
    const int64_t rows_together = sequences * tokens;
    std::vector<std::shared_ptr<Buffer>> queries;
    for (const RowPart& part : shape.queries()) {
      queries.push_back(random_rows(bench.ops, rows_together, part.width));
    }
    const auto output = std::make_shared<Buffer>(bench.ops, rows_together, shape.output_width());
    ring.prepare(positions);
    return [=, this] {
      std::vector<AttendingSequence> attending;
      for (int64_t s = 0; s < sequences; ++s) {
        const BatchSequence rows{.first_row = s * tokens, .tokens = tokens};
        AttentionRows inputs;
        for (const auto& part : queries) inputs.parts.push_back(part->rows(rows));
        attending.push_back({output->rows(rows), inputs, ring.next(), positions - tokens});
      }
      attention({sample.model, bench.ops, bench.precision}, attending, weights.next(), kOnly);
    };
  }
};

PageRing ring_for(const PartsBench& bench, const Sample& sample) {
  return {bench, sample.model.layer(kOnly).attention.cache(),
          std::min(bench.limits.weight_bytes, bench.tier.limit_bytes() / 4)};
}

// Many sequences decode together; a single row would leave most of many threads idle.
Curve time_decode(const AttendCall& call, const ModelDescription& model) {
  constexpr int64_t kSequences = 8;
  const PartsBench& bench = call.bench;
  return CurveTimer(bench.tier, bench.limits, bench.ops)(
      {.sizes = positions_up_to(16384, 4, model),
       .bytes = [&](int64_t) { return call.bytes(kSequences, 1); },
       .make = [&](int64_t positions) { return call.make(kSequences, 1, positions); },
       .scale = call.sample.scale / static_cast<double>(kSequences)});
}

// A decoder attends to an encoder's output as its layers attend to their own rows, but without a
// bias for distances.
ModelDescription without_bias(ModelDescription model, LayerId layer) {
  model.layers[static_cast<size_t>(layer.value)].attention.grouped_heads().relative_bias.reset();
  return model;
}

}  // namespace

Curve time_attend_decode(const PartsBench& bench, const ModelDescription& model, LayerId layer) {
  const Sample sample = bench.sample(model, layer, UnitKind::attention);
  RandomWeights weights(bench.tier, bench.ops, sample.tensors(), bench.types,
                        {.wanted = 0, .most = bench.tier.limit_bytes() / 2});
  PageRing ring = ring_for(bench, sample);
  return time_decode({bench, sample, weights, ring}, model);
}

namespace {

void measure_own_attention(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                           LayerProfile& profile) {
  const Sample sample = bench.sample(model, layer, UnitKind::attention);
  RandomWeights weights = bench.weights(sample);
  weights.arrange(bench.precision);
  profile.attention_products = time_attention_products(bench, sample, weights);

  PageRing ring = ring_for(bench, sample);
  const AttendCall call{bench, sample, weights, ring};
  profile.attend_decode = time_decode(call, model);
  const CurveTimer time(bench.tier, bench.limits, bench.ops);
  profile.attend_prefill = time({.sizes = positions_up_to(4096, 2, model),
                                 .bytes = [&](int64_t tokens) { return call.bytes(1, tokens); },
                                 .make = [&](int64_t n) { return call.make(1, n, n); },
                                 .growth = 2.0,
                                 .scale = sample.scale});
}

}  // namespace

void measure_attention(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                       LayerProfile& profile) {
  measure_own_attention(bench, model, layer, profile);
  const auto* heads = std::get_if<GroupedHeads>(&model.layer(layer).attention.kind);
  if (heads == nullptr || !heads->crosses) return;
  profile.attend_encoded = time_attend_decode(bench, without_bias(model, layer), layer);
}

}  // namespace klotski
