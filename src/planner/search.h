#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/memory_plan.h"
#include "planner/prediction.h"

namespace klotski {

// What is searched for.
struct Choice {
  int64_t micro_batch = 1;    // sequences
  int64_t micro_batches = 1;  // n
  Strategy strategy = Strategy::klotski;
  int64_t hot_experts = 0;  // K; 0: as many as a token chooses
  bool cpu_attention = false;

  int64_t group() const { return micro_batch * micro_batches; }
  bool operator==(const Choice&) const = default;
};

// What the user has fixed of it, and what bounds the rest.
struct SearchSpace {
  int64_t sequences = 1;
  int64_t most_experts = 1;  // of a layer; 1: none is routed
  int64_t top_k = 1;         // that a token chooses of them
  std::optional<int64_t> micro_batch{};
  std::optional<int64_t> micro_batches{};
  std::optional<Strategy> strategy{};
  std::optional<int64_t> hot_experts{};
  // To choose from; of those as fast as each other that use the processors alike, the last.
  std::vector<Strategy> strategies = {Strategy::simple, Strategy::multi_batch,
                                      Strategy::hot_prefetch, Strategy::klotski};

  std::vector<bool> cpu_attention = {false};  // to choose from
};

// The group sizes worth trying, for each way to use the processors (who computes experts, who
// attends): what is fastest for one may be far from it for another, and not all sizes fit each.
// Micro-batches of powers of two, and numbers of them that grow by a third to a half, until all
// sequences are in one group.
std::vector<Choice> group_sizes(const SearchSpace& space);

// The same group by other strategies that use the processors alike, and with other K.
std::vector<Choice> variants(const SearchSpace& space, const Choice& choice);

// A group that has been given its memory.
struct FittedGroup {
  Policy policy;
  MemoryPlan memory;
  std::optional<MemoryPlan> below{};  // of a device
  int64_t at_once = 1;                // sequences for whose keys and values there is room
};

struct Candidate {
  Choice choice;
  FittedGroup group;
  Prediction prediction;
};

// Predicts coarsely every group size that fits (`fit` gives nothing for one that does not), roughly
// those that come near the fastest and the variants of the fastest, and with care the best three
// and the best of each other way that comes near. The chosen one comes first, then these others,
// then the rest by the tokens they generate a second, as last predicted and scaled by how far off
// that was for the best. Where several are within a hundredth of the fastest, the smallest group is
// chosen, among groups of one size that whose processors wait for each other least, then the last
// strategy and the usual K.
std::vector<Candidate> search(const Machinery& with, const PlannedWork& work,
                              const SearchSpace& space,
                              const std::function<std::optional<FittedGroup>(const Choice&)>& fit);

}  // namespace klotski
