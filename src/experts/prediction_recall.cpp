#include "experts/prediction_recall.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "experts/correlation_table.h"
#include "experts/path_chunks.h"

namespace klotski {

namespace {

constexpr size_t kChunksAtOnce = 32;

class RecallCounts {
 public:
  explicit RecallCounts(const RoutingTraceShape& shape)
      : hits_(shape.layers.size()), choices_(shape.layers.size()) {}

  void count(size_t layer, std::span<const uint16_t> chosen, std::span<const int32_t> named) {
    choices_[layer] += std::ssize(chosen);
    for (const uint16_t expert : chosen) {
      hits_[layer] += std::find(named.begin(), named.end(), expert) != named.end() ? 1 : 0;
    }
  }

  Recall recall() const {
    const auto share = [](int64_t hits, int64_t choices) {
      return choices == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(choices);
    };
    Recall result;
    for (size_t i = 0; i < hits_.size(); ++i) {
      result.by_layer.push_back(share(hits_[i], choices_[i]));
    }
    result.all = share(std::accumulate(hits_.begin(), hits_.end(), int64_t{0}),
                       std::accumulate(choices_.begin(), choices_.end(), int64_t{0}));
    return result;
  }

 private:
  std::vector<int64_t> hits_;     // [routed layer]
  std::vector<int64_t> choices_;  // [routed layer]
};

// The `count` experts with the largest scores, ties to the lower expert.
template <typename Score>
std::vector<int32_t> best_experts(std::span<const Score> scores, int32_t count) {
  std::vector<int32_t> experts(scores.size());
  std::iota(experts.begin(), experts.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const Score x = scores[static_cast<size_t>(a)];
    const Score y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(experts.begin(), experts.begin() + count, experts.end(), better);
  experts.resize(static_cast<size_t>(count));
  return experts;
}

// One token's row of scores for the experts of all routed layers.
template <typename Score>
void count_token(const TracedSequences& judged, const TracedSequence& sequence, size_t token,
                 std::span<const Score> scores, RecallCounts& counts) {
  for (size_t layer = 0; layer < judged.shape.layers.size(); ++layer) {
    const RoutedLayer& routed = judged.shape.layers[layer];
    const auto own = scores.first(static_cast<size_t>(routed.experts));
    scores = scores.subspan(own.size());
    counts.count(layer, judged.choices(sequence, token, layer), best_experts(own, routed.top_k));
  }
}

// The choices of some tokens of a sequence, as correlation tables take them.
void add_layer(const TracedSequences& traced, const TracedSequence& sequence, size_t token,
               size_t layer, std::vector<ExpertId>& to) {
  for (const uint16_t expert : traced.choices(sequence, token, layer)) {
    to.push_back(ExpertId(expert));
  }
}

CorrelationTable learnt_table(const TracedSequences& learnt) {
  CorrelationTable table(learnt.shape);
  for (const TracedSequence& sequence : learnt.sequences) {
    GroupChoices group(learnt.shape, std::ssize(sequence.tokens));
    for (size_t layer = 0; layer < learnt.shape.layers.size(); ++layer) {
      std::vector<ExpertId> choices;
      for (size_t t = 0; t < sequence.tokens.size(); ++t) {
        add_layer(learnt, sequence, t, layer, choices);
      }
      group.add_layer(choices);
      table.observe_layer(layer, group);
    }
  }
  return table;
}

}  // namespace

Recall path_recall(PathNetwork& network, const TracedSequences& judged, ThreadPool* pool) {
  RecallCounts counts(judged.shape);
  const std::vector<TracedChunk> chunks = chunks_of(judged, network.shape().chunk);
  for (size_t begin = 0; begin < chunks.size(); begin += kChunksAtOnce) {
    const auto batch =
        std::span(chunks).subspan(begin, std::min(kChunksAtOnce, chunks.size() - begin));
    std::vector<PathChunk> inputs;
    for (const TracedChunk& chunk : batch) {
      inputs.push_back(chunk.path_chunk(static_cast<size_t>(network.shape().chunk)));
    }
    neural::Graph graph(neural::Graph::Mode::run, pool);
    const neural::Matrix& logits = graph.value(network.logits(graph, inputs));
    int64_t row = 0;
    for (const TracedChunk& chunk : batch) {
      for (size_t i = 0; i < chunk.count; ++i) {
        count_token(judged, *chunk.sequence, chunk.first + i, logits.row_span(row++), counts);
      }
    }
  }
  return counts.recall();
}

Recall popularity_recall(const TracedSequences& learnt, const TracedSequences& judged) {
  RecallCounts counts(judged.shape);
  const std::vector<double> shares = learnt.shares();
  for (const TracedSequence& sequence : judged.sequences) {
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      count_token(judged, sequence, t, std::span(shares), counts);
    }
  }
  return counts.recall();
}

Recall correlation_recall(const TracedSequences& learnt, const TracedSequences& judged) {
  RecallCounts counts(judged.shape);
  const CorrelationTable table = learnt_table(learnt);
  GroupChoices group(judged.shape, 1);
  for (const TracedSequence& sequence : judged.sequences) {
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      group.restart(1);
      for (size_t layer = 0; layer < judged.shape.layers.size(); ++layer) {
        std::vector<int32_t> named;
        for (const ExpectedExpert& expected :
             table.hot_experts(layer, group, judged.shape.layers[layer].top_k)) {
          named.push_back(expected.expert.value);
        }
        counts.count(layer, judged.choices(sequence, t, layer), named);
        std::vector<ExpertId> choices;
        add_layer(judged, sequence, t, layer, choices);
        group.add_layer(choices);
      }
    }
  }
  return counts.recall();
}

}  // namespace klotski
