#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/reference/reference_processor.h"

namespace klotski::reference {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> scores_of(std::span<const float> logits, ScoreFunction function) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (function == ScoreFunction::sigmoid) {
    for (float& score : scores) score = sigmoid_of(score);
    return scores;
  }
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0.0f;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score /= sum;
  return scores;
}

// Indices of the `count` largest values, largest first, ties to the lower index.
std::vector<int> largest_indices(std::span<const float> values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int i) {  // a NaN comes last: the order must be a total one
    const float value = values[static_cast<size_t>(i)];
    return std::isnan(value) ? kNever : value;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) > key(b); });
  order.resize(static_cast<size_t>(count));
  return order;
}

// The difference between the least of the `count` largest values and the next; infinite where there
// is no other.
float lead_of_largest(std::span<const float> values, int count) {
  if (static_cast<size_t>(count) >= values.size()) return -kNever;
  const std::vector<int> order = largest_indices(values, count + 1);
  const auto value = [&](int place) {
    return values[static_cast<size_t>(order[static_cast<size_t>(place)])];
  };
  return value(count - 1) - value(count);
}

std::vector<float> group_scores_of(std::span<const float> choice, const RouterRule& rule) {
  const size_t group_size = choice.size() / static_cast<size_t>(rule.groups);
  std::vector<float> group_scores;
  for (size_t begin = 0; begin < choice.size(); begin += group_size) {
    const auto members = choice.subspan(begin, group_size);
    const bool two = rule.group_score == GroupScore::best_two && group_size > 1;
    float score = 0.0f;
    for (const int best : largest_indices(members, two ? 2 : 1)) {
      score += members[static_cast<size_t>(best)];
    }
    group_scores.push_back(score);
  }
  return group_scores;
}

// Experts outside the best groups can no longer be chosen.
void keep_best_groups(std::vector<float>& choice, std::span<const float> group_scores,
                      const RouterRule& rule) {
  const size_t group_size = choice.size() / group_scores.size();
  std::vector<bool> kept(static_cast<size_t>(rule.groups), false);
  for (const int group : largest_indices(group_scores, rule.groups_kept)) {
    kept[static_cast<size_t>(group)] = true;
  }
  for (size_t expert = 0; expert < choice.size(); ++expert) {
    if (!kept[expert / group_size]) choice[expert] = kNever;
  }
}

// The weight that the sparse mixer gives an expert, and by how much a logit would have to change to
// enter or leave the softmax of that weight.
struct Mixed {
  float weight = 0.0f;
  float gap = -kNever;
};

// Mixes the expert chosen[slot].
Mixed mix(std::span<const float> logits, std::span<const int> chosen, size_t slot, float jitter) {
  const float best = logits[static_cast<size_t>(chosen[slot])];
  const auto earlier = chosen.first(slot);
  float sum = 0.0f;
  Mixed mixed;
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    const auto is_this = [&](int other) { return static_cast<size_t>(other) == expert; };
    if (std::any_of(earlier.begin(), earlier.end(), is_this)) continue;
    const float size = std::max(std::abs(logits[expert]), best);
    const float distance = (best - logits[expert]) / size;
    if (!is_this(chosen[slot])) {
      mixed.gap = std::min(mixed.gap, std::abs(distance - 2.0f * jitter) * size);
    }
    if (distance > 2.0f * jitter) continue;
    sum += std::exp(logits[expert] - best);
  }
  mixed.weight = 1.0f / sum;
  return mixed;
}

}  // namespace

void ReferenceProcessor::route(const RouteArguments& arguments) const {
  const RouterRule& rule = arguments.rule;
  const auto experts = static_cast<size_t>(arguments.logits.width);
  for (int64_t token = 0; token < arguments.logits.count; ++token) {
    const std::span<const float> logits(arguments.logits.row(token), experts);
    const std::vector<float> scores = scores_of(logits, rule.score);
    std::vector<float> choice = scores;
    for (size_t e = 0; e < arguments.selection_bias.size(); ++e) {
      choice[e] += arguments.selection_bias[e];
    }
    float group_gap = -kNever;
    if (rule.groups > 1) {
      const std::vector<float> group_scores = group_scores_of(choice, rule);
      keep_best_groups(choice, group_scores, rule);
      group_gap = lead_of_largest(group_scores, rule.groups_kept);
    }
    float gap = std::min(group_gap, lead_of_largest(choice, rule.top_k));
    const std::vector<int> chosen = largest_indices(choice, rule.top_k);
    float sum = 0.0f;
    for (const int expert : chosen) sum += scores[static_cast<size_t>(expert)];
    sum = std::max(sum, rule.least_sum);
    for (size_t slot = 0; slot < chosen.size(); ++slot) {
      const size_t index = static_cast<size_t>(token) * chosen.size() + slot;
      float score = scores[static_cast<size_t>(chosen[slot])];
      if (rule.score == ScoreFunction::sparse_mixer) {
        const Mixed mixed = mix(logits, chosen, slot, rule.jitter);
        gap = std::min(gap, mixed.gap * score);
        score = mixed.weight;
      }
      arguments.experts[index] = ExpertId(chosen[slot]);
      arguments.weights[index] = (rule.renormalise ? score / sum : score) * rule.scale;
    }
    if (!arguments.gaps.empty()) arguments.gaps[static_cast<size_t>(token)] = gap;
  }
}

}  // namespace klotski::reference
