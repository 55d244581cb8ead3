#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/memory_plan.h"
#include "planner/prediction.h"

namespace klotski {

// One choice of the search.
struct Choice {
  int64_t micro_batch = 1;    // sequences
  int64_t micro_batches = 1;  // n
  Strategy strategy = Strategy::klotski;
  int64_t hot_experts = 0;  // K; 0: as many as a token chooses
  bool cpu_attention = false;

  int64_t group() const { return micro_batch * micro_batches; }
  bool operator==(const Choice&) const = default;
};

// The fields of a choice that the user has fixed, and the bounds of the rest.
struct SearchSpace {
  int64_t sequences = 1;
  int64_t most_experts = 1;  // experts of a layer; 1: none is routed
  int64_t top_k = 1;         // experts that a token chooses
  std::optional<int64_t> micro_batch{};
  std::optional<int64_t> micro_batches{};
  std::optional<Strategy> strategy{};
  std::optional<int64_t> hot_experts{};
  // Strategies to choose from; the last of several that are equally fast and use the processors
  // alike.
  std::vector<Strategy> strategies = {Strategy::simple, Strategy::multi_batch,
                                      Strategy::hot_prefetch, Strategy::klotski};

  std::vector<bool> cpu_attention = {false};  // values to choose from
};

// The group sizes worth trying, for each way to use the processors (who computes experts, who
// attends): the fastest size for one way may be far from it for another, and not all sizes fit
// each. Micro-batches of powers of two, and numbers of them that grow by a third to a half, until
// all sequences are in one group.
std::vector<Choice> group_sizes(const SearchSpace& space);

// The group by other strategies that use the processors alike, and with other K.
std::vector<Choice> variants(const SearchSpace& space, const Choice& choice);

// A group that has been given its memory.
struct FittedGroup {
  Policy policy;
  MemoryPlan memory;
  std::optional<MemoryPlan> below{};  // host memory of a device
  int64_t at_once = 1;                // sequences for whose keys and values there is room
};

struct Candidate {
  Choice choice;
  FittedGroup group;
  Prediction prediction;
};

// Predicts coarsely every group size that fits (`fit` gives nothing for one that does not), roughly
// those that come near the fastest and the variants of the fastest, and with care the best three to
// six and the best of each other way that comes near. The chosen candidate comes first, then the
// others predicted with care, then the rest by the tokens they generate a second, as last predicted
// and scaled by how far off that was for the best. Where several are within a hundredth of the
// fastest, the smallest group is chosen, among groups of one size that whose processors wait for
// each other least, then the last strategy and the usual K.
std::vector<Candidate> search(const PredictionInputs& with, const PlannedWork& work,
                              const SearchSpace& space,
                              const std::function<std::optional<FittedGroup>(const Choice&)>& fit);

}  // namespace klotski
