#include "planner/search.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "planner/sampled_prediction.h"

namespace klotski {

namespace {

constexpr double kAsFast = 0.99;  // share of the fastest rate: the smaller group answers sooner
constexpr double kNearly = 0.75;  // share of the fastest rough rate: worth a closer look
// Share of the fastest coarse rate of one way to use the processors: a rough look may find it
// faster.
constexpr double kPromising = 0.85;
constexpr size_t kLeastPromising = 4;
// Share of a group's rate that a variant of it must roughly come to for a closer look: rough
// predictions find variants too slow by a few hundredths, but may find them far too fast.
constexpr double kNearVariant = 0.9;

using Fit = std::function<std::optional<FittedGroup>(const Choice&)>;

double rate(const Candidate& candidate) { return candidate.prediction.tokens_per_second(); }

using CandidatePlace = std::vector<Candidate>::iterator;

void sort_by_rate(CandidatePlace begin, CandidatePlace end) {
  std::stable_sort(begin, end,
                   [](const Candidate& a, const Candidate& b) { return rate(a) > rate(b); });
}

// The choices that fit, each with its memory and without a prediction.
std::vector<Candidate> fitted(const std::vector<Choice>& choices, const Fit& fit) {
  std::vector<Candidate> candidates;
  for (const Choice& choice : choices) {
    if (std::optional<FittedGroup> group = fit(choice)) {
      candidates.push_back({choice, std::move(*group), {}});
    }
  }
  return candidates;
}

// Moves candidates that are worth a rough prediction to the front, in order of their rates: for
// each way to use the processors the candidates that come near its fastest, since coarse
// predictions of different ways are off by different factors. Returns their number.
size_t promising_first(std::vector<Candidate>& candidates) {
  sort_by_rate(candidates.begin(), candidates.end());
  size_t seen = 0;
  const auto promises = [&](const Candidate& one) {
    if (seen++ < kLeastPromising) return true;
    const auto fastest =  // the fastest of its way: itself at the latest
        std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& other) {
          return processors_of(other.choice) == processors_of(one.choice);
        });
    return rate(one) >= kPromising * rate(*fastest) &&
           rate(one) >= kNearly * kPromising * rate(candidates.front());
  };
  std::vector<bool> kept(candidates.size());
  std::transform(candidates.begin(), candidates.end(), kept.begin(), promises);
  std::vector<Candidate> promising;
  std::vector<Candidate> others;
  for (size_t i = 0; i < candidates.size(); ++i) {
    (kept[i] ? promising : others).push_back(std::move(candidates[i]));
  }
  const size_t count = promising.size();
  std::move(others.begin(), others.end(), std::back_inserter(promising));
  candidates = std::move(promising);
  return count;
}

// Predicts the first `count` candidates anew, with more care, and scales the remaining predictions
// by how far off that of the first one was. Returns that factor.
double predict_first(std::vector<Candidate>& candidates, size_t count,
                     const SampledPrediction& predicted) {
  const double before = candidates.front().prediction.seconds();
  predicted.of_all(std::span(candidates).first(count));
  const double off = candidates.front().prediction.seconds() / before;
  for (size_t i = count; i < candidates.size(); ++i) candidates[i].prediction.slow_down(off);
  return off;
}

// The three looks at a choice, each at fewer of them.
struct Looks {
  Looks(const PredictionInputs& with, const PlannedWork& work, int64_t experts)
      : coarse(with, work, experts, Care::coarse),
        rough(with, work, experts, Care::rough),
        careful(with, work, experts, Care::careful) {}

  SampledPrediction coarse;
  SampledPrediction rough;
  SampledPrediction careful;
};

// All group sizes that fit and the variants of the fastest, roughly predicted, the fastest first.
std::vector<Candidate> rough_candidates(const Looks& looks, const SearchSpace& space,
                                        const Fit& fit) {
  std::vector<Candidate> candidates = fitted(group_sizes(space), fit);
  if (candidates.empty()) return {};
  looks.coarse.of_all(candidates);
  predict_first(candidates, promising_first(candidates), looks.rough);
  sort_by_rate(candidates.begin(), candidates.end());
  std::vector<Candidate> others = fitted(variants(space, candidates.front().choice), fit);
  looks.rough.of_all(others);
  std::move(others.begin(), others.end(), std::back_inserter(candidates));
  sort_by_rate(candidates.begin(), candidates.end());
  return candidates;
}

// The index of the choice among the candidates as fast as the first: the smallest group whose
// processors wait for each other least, with the last of the strategies and the usual K.
size_t chosen_of(const std::vector<Candidate>& candidates, const SearchSpace& space) {
  const auto rank = [&](const Candidate& c) {
    const auto& all = space.strategies;
    const auto from_last = std::find(all.rbegin(), all.rend(), c.choice.strategy) - all.rbegin();
    return std::tuple(c.choice.group(), processors_of(c.choice), from_last, c.choice.hot_experts);
  };
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (rate(candidates[i]) < kAsFast * rate(candidates[0])) break;
    if (rank(candidates[i]) < rank(candidates[best])) best = i;
  }
  return best;
}

// The number of first candidates that are predicted with care: candidates that a closer look may
// find to be the fastest, within the time it may cost.
size_t finalists_of(const std::vector<Candidate>& candidates) {
  constexpr size_t kLeast = 3;
  constexpr size_t kMost = 6;
  constexpr double kNear = 0.95;  // share of the first one's rate, roughly
  size_t count = 0;
  while (count < std::min(kMost, candidates.size()) &&
         (count < kLeast || rate(candidates[count]) >= kNear * rate(candidates.front()))) {
    ++count;
  }
  return count;
}

// Moves behind the first `count` candidates the fastest one of each way to use the processors and
// of each micro-batch size that is not among them, if it comes near the first: rough predictions of
// different ways and sizes are off by different factors. Returns the new count.
size_t add_other_ways(std::vector<Candidate>& candidates, size_t count) {
  constexpr double kNearSize = 0.9;  // share of the first one's rate, of a size used in a known way
  for (size_t i = count; i < candidates.size(); ++i) {
    const auto here = candidates.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(count);
    const auto same_way = [&](const Candidate& one) {
      return processors_of(one.choice) == processors_of(here->choice);
    };
    const auto same_way_and_size = [&](const Candidate& one) {
      return same_way(one) && one.choice.micro_batch == here->choice.micro_batch;
    };
    if (std::any_of(candidates.begin(), end, same_way_and_size)) continue;
    const double least = std::any_of(candidates.begin(), end, same_way) ? kNearSize : kNearly;
    if (rate(*here) < least * rate(candidates.front())) continue;
    std::rotate(end, here, here + 1);
    ++count;
  }
  return count;
}

// The candidates of `from` that are among these choices, taken out of it.
std::vector<Candidate> take_out(std::vector<Candidate>& from, const std::vector<Choice>& choices) {
  const auto stays = [&](const Candidate& one) {
    return std::find(choices.begin(), choices.end(), one.choice) == choices.end();
  };
  const auto taken = std::stable_partition(from.begin(), from.end(), stays);
  std::vector<Candidate> found(std::make_move_iterator(taken), std::make_move_iterator(from.end()));
  from.erase(taken, from.end());
  return found;
}

struct Ranking {
  std::vector<Candidate> best;  // predicted with care
  std::vector<Candidate> rest;  // predicted coarsely or roughly, then scaled by `off`
  double off = 1.0;             // of the first: careful seconds by rough ones
  // Rates of the best by rough predictions, scaled by `off`.
  std::vector<std::pair<Choice, double>> rough_rates;
};

// Predicts the first `count` candidates with care.
Ranking ranking_of(std::vector<Candidate> candidates, size_t count,
                   const SampledPrediction& careful) {
  Ranking found;
  for (size_t i = 0; i < count; ++i) {
    found.rough_rates.emplace_back(candidates[i].choice, rate(candidates[i]));
  }
  found.off = predict_first(candidates, count, careful);
  for (auto& [choice, rough_rate] : found.rough_rates) rough_rate /= found.off;
  const auto rest =
      std::make_move_iterator(candidates.begin() + static_cast<std::ptrdiff_t>(count));
  found.best.assign(std::make_move_iterator(candidates.begin()), rest);
  found.rest.assign(rest, std::make_move_iterator(candidates.end()));
  sort_by_rate(found.best.begin(), found.best.end());
  return found;
}

// Variants of the fastest that are not among the best, with rough predictions: taken out of the
// rest or, where a closer look found another group to be the fastest, predicted now.
std::vector<Candidate> other_variants(Ranking& ranking, const SearchSpace& space, const Fit& fit,
                                      const SampledPrediction& rough) {
  std::vector<Choice> choices = variants(space, ranking.best.front().choice);
  const auto drop = [&](const std::vector<Candidate>& known) {
    for (const Candidate& one : known) std::erase(choices, one.choice);
  };
  drop(ranking.best);
  std::vector<Candidate> others = take_out(ranking.rest, choices);
  drop(others);
  std::vector<Candidate> unknown = fitted(choices, fit);
  rough.of_all(unknown);
  for (Candidate& one : unknown) one.prediction.slow_down(ranking.off);
  std::move(unknown.begin(), unknown.end(), std::back_inserter(others));
  return others;
}

// Adds candidates to the best, with careful predictions.
void add_to_best(Ranking& ranking, std::vector<Candidate> others,
                 const SampledPrediction& careful) {
  careful.of_all(others);
  std::move(others.begin(), others.end(), std::back_inserter(ranking.best));
  sort_by_rate(ranking.best.begin(), ranking.best.end());
}

// Adds variants of the fastest to the best, with careful predictions, and to the rest where rough
// ones say that they are far slower.
void add_variants(Ranking& ranking, std::vector<Candidate> others,
                  const SampledPrediction& careful) {
  const auto leader =
      std::find_if(ranking.rough_rates.begin(), ranking.rough_rates.end(),
                   [&](const auto& one) { return one.first == ranking.best.front().choice; });
  // The rough prediction of the fastest may be too fast, and those of its variants right: with few
  // layers all weights may lie in the two buffers of a strategy that loads by layer.
  const double careful_rate = rate(ranking.best.front()) / ranking.off;
  const double least = kNearVariant * std::min(leader->second, careful_rate);
  const auto far = std::stable_partition(others.begin(), others.end(),
                                         [&](const Candidate& one) { return rate(one) >= least; });
  std::move(far, others.end(), std::back_inserter(ranking.rest));
  others.erase(far, others.end());
  add_to_best(ranking, std::move(others), careful);
}

bool same_size(const Choice& a, const Choice& b) {
  return a.micro_batch == b.micro_batch && a.micro_batches == b.micro_batches &&
         processors_of(a) == processors_of(b);
}

// Group sizes near the fastest with the strategies and K that make the fastest size faster than it
// is by theirs: they may gain more there.
std::vector<Choice> variants_of_near_sizes(const Ranking& ranking) {
  constexpr size_t kMost = 6;
  constexpr double kNear = 0.95;  // share of the first one's rate
  const Candidate& first = ranking.best.front();
  std::vector<const Candidate*> variants;  // of the fastest size
  for (const std::vector<Candidate>* known : {&ranking.best, &ranking.rest}) {
    for (const Candidate& one : *known) {
      if (same_size(one.choice, first.choice)) variants.push_back(&one);
    }
  }
  std::vector<Choice> found;
  for (const Candidate& near : ranking.best) {
    if (same_size(near.choice, first.choice) || rate(near) < kNear * rate(first)) continue;
    const auto usual = std::find_if(variants.begin(), variants.end(), [&](const Candidate* one) {
      return one->choice.strategy == near.choice.strategy &&
             one->choice.hot_experts == near.choice.hot_experts;
    });
    if (usual == variants.end()) continue;
    for (const Candidate* one : variants) {
      if (kAsFast * rate(*one) <= rate(**usual) || found.size() == kMost) continue;
      Choice choice = near.choice;
      choice.strategy = one->choice.strategy;
      choice.hot_experts = one->choice.hot_experts;
      const bool known = std::any_of(ranking.best.begin(), ranking.best.end(),
                                     [&](const Candidate& c) { return c.choice == choice; });
      if (!known && std::count(found.begin(), found.end(), choice) == 0) found.push_back(choice);
    }
  }
  return found;
}

// Adds variants of near group sizes to the best, with careful predictions.
void add_variants_of_near_sizes(Ranking& ranking, const Fit& fit,
                                const SampledPrediction& careful) {
  const std::vector<Choice> choices = variants_of_near_sizes(ranking);
  take_out(ranking.rest, choices);
  add_to_best(ranking, fitted(choices, fit), careful);
}

}  // namespace

std::vector<Candidate> search(const PredictionInputs& with, const PlannedWork& work,
                              const SearchSpace& space, const Fit& fit) {
  const Looks looks(with, work, space.most_experts);
  std::vector<Candidate> candidates = rough_candidates(looks, space, fit);
  if (candidates.empty()) return {};
  // The candidate that would be chosen now comes first.
  const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(chosen_of(candidates, space));
  std::rotate(candidates.begin(), first, first + 1);
  // Variants of the first that are no faster say little: other sizes are looked at before them.
  const Choice& leader = candidates.front().choice;
  const auto says_more = [&](const Candidate& one) {
    return one.choice.micro_batch != leader.micro_batch ||
           one.choice.micro_batches != leader.micro_batches ||
           kAsFast * rate(one) > rate(candidates.front());
  };
  std::stable_partition(candidates.begin() + 1, candidates.end(), says_more);
  const size_t looked_at = add_other_ways(candidates, finalists_of(candidates));
  Ranking ranking = ranking_of(std::move(candidates), looked_at, looks.careful);
  add_variants(ranking, other_variants(ranking, space, fit, looks.rough), looks.careful);
  add_variants_of_near_sizes(ranking, fit, looks.careful);
  std::vector<Candidate>& best = ranking.best;
  std::vector<Candidate>& rest = ranking.rest;
  const auto chosen = best.begin() + static_cast<std::ptrdiff_t>(chosen_of(best, space));
  std::rotate(best.begin(), chosen, chosen + 1);
  sort_by_rate(rest.begin(), rest.end());
  std::move(rest.begin(), rest.end(), std::back_inserter(best));
  return best;
}

}  // namespace klotski
