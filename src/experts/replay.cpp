#include "experts/replay.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "experts/popularity_predictor.h"

namespace klotski {

namespace {

// Calls `action` with the layer and its choices, for each routed layer of the token.
template <typename Action>
void for_each_layer(const ReplayTrace& trace, int64_t token, const Action& action) {
  std::span<const ExpertId> rest = trace.choices(token);
  for (const RoutedLayer& layer : trace.shape().layers) {
    const auto top_k = static_cast<size_t>(layer.top_k);
    action(layer.layer, rest.first(top_k));
    rest = rest.subspan(top_k);
  }
}

void ask_for(ExpertCache& cache, LayerId layer, std::span<const ExpertId> experts) {
  for (const ExpertId expert : experts) cache.acquire({layer, expert})->lease.release();
}

void learn(ExpertPredictor& predictor, const ReplayTrace& trace) {
  for (int64_t i = 0; i < trace.tokens(); ++i) {
    predictor.begin_pass({trace.token(i)});
    for_each_layer(trace, i, [&](LayerId layer, std::span<const ExpertId> experts) {
      predictor.observe(layer, experts);
    });
    if (trace.ends_sequence(i)) predictor.end_sequence(trace.token(i).sequence);
  }
}

// The share of each layer's choices that goes to each expert; all alike where nothing was chosen.
std::vector<std::vector<double>> shares_in(const RoutingTraceShape& shape,
                                           std::span<const ReplayTrace> traces) {
  ActivationMatrix counts(shape);
  for (const ReplayTrace& trace : traces) {
    for (int64_t i = 0; i < trace.tokens(); ++i) {
      size_t routed = 0;
      for_each_layer(trace, i, [&](LayerId, std::span<const ExpertId> experts) {
        counts.count(routed++, experts);
      });
    }
  }
  std::vector<std::vector<double>> shares;
  for (size_t l = 0; l < counts.layers(); ++l) {
    const std::span<const float> row = counts.layer(l);
    double sum = 0.0;
    for (const float count : row) sum += count;
    std::vector<double>& of_layer = shares.emplace_back();
    for (const float count : row) {
      of_layer.push_back(sum > 0 ? count / sum : 1.0 / static_cast<double>(row.size()));
    }
  }
  return shares;
}

}  // namespace

ReplayTrace::ReplayTrace(std::span<const std::string> paths) {
  for (size_t file = 0; file < paths.size(); ++file) {
    read(paths[file], static_cast<int64_t>(file));
  }
  find_ends();
}

void ReplayTrace::read(const std::string& path, int64_t file) {
  RoutingTraceReader reader{std::filesystem::path(path)};
  if (file == 0) shape_ = reader.shape();
  if (reader.shape().layers != shape_.layers) {
    fail(ErrorKind::usage,
         "{}: expected the same routed layers as in the traces before, found others; replay traces "
         "of one model at a time",
         path_in_quotes(path));
  }
  RoutingRecord record;
  while (reader.next(record)) {
    // Numbers of sequences have 32 bits in a file.
    tokens_.push_back({.sequence = (file << 32) + record.sequence,
                       .position = record.position,
                       .token = record.token,
                       .decodes = true});
    choices_.insert(choices_.end(), record.choices.begin(), record.choices.end());
  }
}

void ReplayTrace::find_ends() {
  ends_.resize(tokens_.size());
  std::set<int64_t> later;
  for (size_t i = tokens_.size(); i-- > 0;) ends_[i] = later.insert(tokens_[i].sequence).second;
}

std::span<const ExpertId> ReplayTrace::choices(int64_t i) const {
  const auto of_token = static_cast<size_t>(shape_.choices_per_token());
  return std::span(choices_).subspan(static_cast<size_t>(i) * of_token, of_token);
}

std::vector<ExpertKey> ReplayTrace::requests() const {
  std::vector<ExpertKey> keys;
  for (int64_t i = 0; i < tokens(); ++i) {
    for_each_layer(*this, i, [&](LayerId layer, std::span<const ExpertId> experts) {
      for (const ExpertId expert : experts) keys.push_back({layer, expert});
    });
  }
  return keys;
}

void replay(const ReplayTrace& trace, ExpertPredictor* predictor,
            std::span<const std::unique_ptr<ExpertCache>> caches) {
  for (int64_t i = 0; i < trace.tokens(); ++i) {
    if (predictor) predictor->begin_pass({trace.token(i)});
    for_each_layer(trace, i, [&](LayerId layer, std::span<const ExpertId> experts) {
      std::vector<LayerProbabilities> expected;
      if (predictor) {
        predictor->observe(layer, experts);
        expected = predictor->coming(std::ssize(trace.shape().layers));
        expected.push_back({layer, predictor->group_probabilities(layer)});
      }
      const std::vector<double> later =
          predictor ? predictor->next_pass_probabilities(layer) : std::vector<double>();
      for (const std::unique_ptr<ExpertCache>& cache : caches) {
        cache->now_at(layer);
        for (const LayerProbabilities& one : expected) cache->expect(one.layer, one.probability);
        if (!later.empty()) cache->expect_in_next_pass(layer, later);
        ask_for(*cache, layer, experts);
      }
    });
    if (predictor && trace.ends_sequence(i)) predictor->end_sequence(trace.token(i).sequence);
  }
}

ReplayPredictors::ReplayPredictors(const RoutingTraceShape& shape, PredictorChoice kept)
    : shape_(shape), kept_(std::move(kept)), correlations_(shape) {
  if (kept_.history) began_with_ = std::make_shared<const ActivationHistory>(*kept_.history);
}

std::vector<std::string_view> ReplayPredictors::names() const {
  std::vector<std::string_view> names = {"popularity"};
  for (const std::string_view name : predictor_names()) {
    const bool lacks_state = name == "none" || name == "oracle" ||
                             (name == "path" && !kept_.network) ||
                             (name == "activation-aware" && !kept_.history);
    if (!lacks_state) names.push_back(name);
  }
  return names;
}

std::unique_ptr<ExpertPredictor> ReplayPredictors::make(std::string_view name,
                                                        std::span<const ReplayTrace> learn_from) {
  std::unique_ptr<ExpertPredictor> predictor;
  if (name == "popularity") {
    predictor = std::make_unique<PopularityPredictor>(shape_, shares_in(shape_, learn_from));
  } else {
    correlations_ = CorrelationTable(shape_);
    PredictorChoice choice = kept_;
    choice.name = name;
    if (name != "activation-aware" && began_with_) {
      borrowed_ = std::make_shared<ActivationHistory>(*began_with_);
      choice.history = borrowed_;
    }
    predictor = make_predictor(choice, correlations_);
  }
  for (const ReplayTrace& trace : learn_from) learn(*predictor, trace);
  return predictor;
}

}  // namespace klotski
