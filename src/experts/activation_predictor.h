#pragma once

#include <array>
#include <map>
#include <vector>

#include "experts/activation_collection.h"
#include "experts/predictor.h"

namespace klotski {

// Predicts the experts of a sequence by the past requests that are most like it (MoE-Infinity,
// section 5.1). The sequence's matrix so far, the layers known of the pass at hand included, is
// compared with the stored ones; where no pass of the sequence is complete, by the layers known
// alone. The nearest matrices are summed, each row normalised. The more tokens of the sequence were
// seen, the more its own matrix counts beside the matched ones. Matrices of requests that end join
// the history.
class ActivationPredictor : public ExpertPredictor {
 public:
  // `history` must live longer.
  explicit ActivationPredictor(ActivationHistory& history);

  void end_sequence(int64_t sequence) override;
  std::vector<double> next_pass_probabilities(LayerId layer) const override;

 private:
  // A prompt or the decoding of a sequence that runs. `dots` and `seen_squared` follow `request`
  // and `iteration` count by count, so that a gate costs a few steps for each stored matrix.
  struct Trace {
    explicit Trace(const RoutingTraceShape& shape);

    ActivationMatrix request;      // of all complete iterations
    ActivationMatrix iteration;    // of the pass at hand
    int64_t tokens = 0;            // in `request`
    int64_t version = -1;          // of the collection that `dots` is about
    std::vector<double> dots;      // [stored matrix]: dot product with request + iteration
    double seen_squared = 0.0;     // of request + iteration
    std::vector<int64_t> matched;  // numbers of the stored matrices nearest to request + iteration
  };
  // [0] the prompt, [1] decoding.
  using Traces = std::array<Trace, 2>;

  void pass_begun() override;
  void learn(size_t routed_layer) override;
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override;

  ActivationCollection& collection(bool decodes) {
    return decodes ? history_.decode : history_.prompt;
  }
  // The first token in the pass of each sequence: the tokens of one follow each other.
  std::vector<PassToken> sequences() const;
  const Trace& trace_of(const PassToken& token) const;
  Trace& trace_of(const PassToken& token);
  void add_choice(Trace& trace, const ActivationCollection& past, size_t routed_layer,
                  ExpertId expert);
  void end_oldest();
  void match(Trace& trace, const ActivationCollection& past, size_t known_layers);

  ActivationHistory& history_;
  std::map<int64_t, Traces> running_;  // by sequence
};

}  // namespace klotski
