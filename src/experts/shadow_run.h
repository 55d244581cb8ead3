#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/expert_cache.h"
#include "experts/guesses.h"

namespace klotski {

// Seconds of a run's parts, as measured or assumed.
struct RunPace {
  double load_seconds = 0.0;   // of one expert over the link
  double layer_seconds = 0.0;  // computing of one layer

  // Experts that come while a layer computes; 1 where the seconds of a load are not known.
  double loads_a_layer() const { return load_seconds > 0 ? layer_seconds / load_seconds : 1.0; }
};

// A run that is only counted: a cache, a link that brings one expert at a time, and the seconds
// that the layers of the passes take. Nothing is computed and nothing is loaded.
class ShadowRun {
 public:
  ShadowRun(int64_t slots, std::unique_ptr<EvictionRule> rule);

  ExpertCache& cache() { return cache_; }

  // Runs a layer whose experts were chosen by these numbers of rows, [expert]. The link finishes
  // the guess it is at, then brings missing experts one after the other; then the layer computes.
  void run_layer(LayerId layer, std::span<const int64_t> expert_rows, const RunPace& pace);
  // Brings missing experts in this order while the layer computes that was run last, as far as that
  // is worth it and they are worth more than the expert that leaves.
  void make_guesses(std::span<const Guess> guesses, const RunPace& pace);

  double seconds() const { return now_; }
  double stalled() const { return stalled_; }  // seconds that layers waited for experts

 private:
  double wait_for(ExpertKey chosen, const RunPace& pace);

  ExpertCache cache_;
  double now_ = 0.0;
  double link_free_ = 0.0;
  double stalled_ = 0.0;
  struct Coming {
    ExpertKey expert;
    double at;
  };
  std::vector<Coming> coming_;  // guesses since the last gates
};

}  // namespace klotski
