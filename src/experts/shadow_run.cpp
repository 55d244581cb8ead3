#include "experts/shadow_run.h"

#include <algorithm>
#include <utility>

namespace klotski {

ShadowRun::ShadowRun(int64_t slots, std::unique_ptr<EvictionRule> rule)
    : cache_(slots, std::move(rule)) {}

// The time at which a chosen expert is there.
double ShadowRun::wait_for(ExpertKey chosen, const RunPace& pace) {
  const auto grant = cache_.acquire(chosen);
  if (grant && !grant->must_load) {
    const auto guess = std::find_if(coming_.begin(), coming_.end(),
                                    [&](const Coming& one) { return one.expert == chosen; });
    return guess == coming_.end() ? now_ : guess->at;
  }
  link_free_ = std::max(link_free_, now_) + pace.load_seconds;
  return link_free_;
}

void ShadowRun::run_layer(LayerId layer, std::span<const int64_t> expert_rows,
                          const RunPace& pace) {
  cache_.now_at(layer);
  std::vector<double> certain;  // one that was chosen does not leave for another
  for (const int64_t rows : expert_rows) certain.push_back(rows > 0 ? 1.0 : 0.0);
  cache_.expect(layer, certain);
  double there = now_;
  for (size_t e = 0; e < expert_rows.size(); ++e) {
    if (expert_rows[e] == 0) continue;
    there = std::max(there, wait_for({layer, ExpertId(static_cast<int64_t>(e))}, pace));
  }
  coming_.clear();
  stalled_ += there - now_;
  now_ = there + pace.layer_seconds;
  link_free_ = std::max(link_free_, there);
}

void ShadowRun::make_guesses(std::span<const Guess> guesses, const RunPace& pace) {
  for (const Guess& guess : guesses) {
    if (!worth_guessing(guess, coming_.size(), pace.loads_a_layer())) return;
    if (cache_.resident(guess.expert) || !cache_.would_stay(guess.expert)) continue;
    if (!cache_.acquire_ahead(guess.expert)) return;
    link_free_ += pace.load_seconds;
    coming_.push_back({guess.expert, link_free_});
  }
}

}  // namespace klotski
