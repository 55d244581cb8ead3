#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/strategy_properties.h"

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
  // Strategies to choose from. Where several are equally fast and use the processors alike, the
  // last one is chosen. One strategy stands for all that follow a predictor, since simulations have
  // only one predictor.
  std::vector<Strategy> strategies = {Strategy::simple, Strategy::multi_batch,
                                      Strategy::hot_prefetch, Strategy::activation_aware,
                                      Strategy::klotski};

  std::vector<bool> cpu_attention = {false};  // values to choose from
};

// The group sizes worth trying, for each way to use the processors (who computes experts, who
// attends): the fastest size for one way may be far from it for another, and not all sizes fit
// each. Micro-batches of powers of two, and numbers of them that grow by a third to a half, until
// all sequences are in one group.
std::vector<Choice> group_sizes(const SearchSpace& space);

// The group by other strategies that use the processors alike, and with other K.
std::vector<Choice> variants(const SearchSpace& space, const Choice& choice);

// The processors that a choice uses: whether others than the compute tier compute experts, and
// whether the CPU attends.
std::pair<bool, bool> processors_of(const Choice& choice);

}  // namespace klotski
