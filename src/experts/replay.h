#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experts/correlation_table.h"
#include "experts/expert_cache.h"
#include "experts/predictor.h"
#include "experts/predictor_choice.h"
#include "experts/routing_trace.h"

namespace klotski {

// Recorded tokens with the experts that they chose, to be played through caches without computing.
class ReplayTrace {
 public:
  // The records of the files in their order. The files must be about the same routed layers;
  // sequences of different files are different ones.
  explicit ReplayTrace(std::span<const std::string> paths);

  const RoutingTraceShape& shape() const { return shape_; }
  int64_t tokens() const { return std::ssize(tokens_); }
  const PassToken& token(int64_t i) const { return tokens_[static_cast<size_t>(i)]; }
  // Whether no later token belongs to the token's sequence.
  bool ends_sequence(int64_t i) const { return ends_[static_cast<size_t>(i)]; }
  // [routed layer][top_k of that layer], best first.
  std::span<const ExpertId> choices(int64_t i) const;
  // Every expert that replay() asks for, in that order.
  std::vector<ExpertKey> requests() const;

 private:
  void read(const std::string& path, int64_t file);
  void find_ends();

  RoutingTraceShape shape_;
  std::vector<PassToken> tokens_;
  std::vector<bool> ends_;
  std::vector<ExpertId> choices_;
};

// Plays the tokens one by one, each a pass: layers rising, experts best first; each expert is asked
// for, loaded where it is missing and given back before the next. All caches see the same requests.
// A predictor is told of every token and gate as in a run; after each gate the caches are told what
// the coming layers are expected to need. Null: nothing is predicted.
void replay(const ReplayTrace& trace, ExpertPredictor* predictor,
            std::span<const std::unique_ptr<ExpertCache>> caches);

// The predictors that a replay can ask, with the state in which they begin.
class ReplayPredictors {
 public:
  // `kept` has the state of those that need some; its name does not count.
  ReplayPredictors(const RoutingTraceShape& shape, PredictorChoice kept);

  // "popularity" (shares of the traces learnt from) and the names that make_predictor() knows, but
  // those whose state was not kept.
  std::vector<std::string_view> names() const;
  // The predictor after it has learnt from the traces. Throws for other names.
  std::unique_ptr<ExpertPredictor> make(std::string_view name,
                                        std::span<const ReplayTrace> learn_from);

 private:
  RoutingTraceShape shape_;
  PredictorChoice kept_;
  std::shared_ptr<const ActivationHistory> began_with_;  // null: no history is kept
  // One for the predictor at hand where past requests only help it: kept_ grows by the predictor
  // that is named after them alone.
  std::shared_ptr<ActivationHistory> borrowed_;
  CorrelationTable correlations_;
};

}  // namespace klotski
