#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "engine/prepared_model.h"
#include "engine/reference_file.h"

namespace klotski {

// The choices of the gates of one routed layer at the positions of one sequence.
struct ObservedLayer {
  int64_t choices = 0;  // experts a position
  size_t first = 0;     // first position: not 0 in the decoder of a model with an encoder
  // Experts, weights and gaps are those of the positions from the first one on.
  std::vector<ExpertId> experts;  // [position][choices], rising: the set matters, not its order
  std::vector<float> weights;     // [position][choices], of these experts
  std::vector<float> gaps;        // [position], as in RouteArguments; needs options.router_gaps

  // Whether the experts at a position are another run's, and their weights nearly so: some routers
  // give the same experts clearly other weights where a logit crosses a bound.
  bool chose_as(const ObservedLayer& other, size_t position) const;
  // Whether the layer's gates chose for this position.
  bool has(size_t position) const { return position >= first && position - first < gaps.size(); }
  float gap(size_t position) const { return gaps[position - first]; }
};

// A model's results on the tokens of a reference prompt and its continuation.
struct ObservedPrompt {
  std::vector<TokenId> best;    // [position], most likely next token; -1: not asked for, or none
  std::vector<double> margins;  // [position], by which its logit leads the second
  std::vector<ObservedLayer> layers;  // the routed ones
  std::optional<double> logit_error;  // at the last prompt position, if it has logits: largest
                                      // difference over the reference's largest magnitude
};

// Runs the prompts one by one and their continuations together, always on the reference's own
// tokens, so that a tie decided the other way does not change later tokens.
// `progress` is told after every batch how many tokens were computed, of how many.
std::vector<ObservedPrompt> observe(
    Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
    const std::function<void(uint64_t done, uint64_t total)>& progress = {});

// The work of observing the prompts, for a pipeline, and the memory of `runs` results, for its
// caller.
Workload observe_workload(const std::vector<ReferencePrompt>& prompts,
                          const ModelDescription& model, int runs);

}  // namespace klotski
