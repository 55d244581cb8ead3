#include "experts/guesses.h"

#include <algorithm>

namespace klotski {

std::vector<Guess> by_priority(const std::vector<LayerProbabilities>& coming, LayerId next,
                               int64_t layer_count) {
  constexpr double kLeastPriority = 0.05;
  std::vector<Guess> guesses;
  for (const LayerProbabilities& expected : coming) {
    const int64_t ahead = (expected.layer.value - next.value + layer_count) % layer_count;
    const double proximity = 1.0 - static_cast<double>(ahead) / static_cast<double>(layer_count);
    for (size_t e = 0; e < expected.probability.size(); ++e) {
      const double priority = expected.probability[e] * proximity;
      if (priority < kLeastPriority) continue;
      guesses.push_back({{expected.layer, ExpertId(static_cast<int64_t>(e))}, priority});
    }
  }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.priority > b.priority; });
  return guesses;
}

}  // namespace klotski
