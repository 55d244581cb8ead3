#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/noise.h"
#include "kernels/ops.h"

namespace klotski {

namespace {

// A well-mixed 64-bit number for each (seed, index).
uint64_t mixed(uint64_t seed, uint64_t index) {
  return mix(mix(seed * kNoiseStep + index + kNoiseStep) + kNoiseStep);
}

}  // namespace

PositionLogprobs logprobs_of(std::span<const float> logits, TokenId chosen, int64_t most) {
  double best = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) best = std::max(best, static_cast<double>(logit));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  const double whole = best + std::log(sum);
  const auto logprob = [&](TokenId token) {
    return static_cast<double>(logits[static_cast<size_t>(token)]) - whole;
  };

  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  const auto kept = order.begin() + std::min<int64_t>(most, std::ssize(order));
  std::partial_sort(order.begin(), kept, order.end(), [&](TokenId a, TokenId b) {
    const float left = logits[static_cast<size_t>(a)];
    const float right = logits[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  PositionLogprobs result{.chosen = logprob(chosen), .top = {}};
  for (auto token = order.begin(); token != kept; ++token) {
    result.top.push_back({*token, logprob(*token)});
  }
  return result;
}

Sampler::Sampler(const SamplingOptions& options, std::span<const TokenId> prompt)
    : options_(options), seen_(prompt.begin(), prompt.end()) {}

bool Sampler::adjusts() const {
  return !options_.logit_bias.empty() || options_.repetition_penalty != 1.0 ||
         options_.presence_penalty != 0.0 || options_.frequency_penalty != 0.0;
}

bool Sampler::takes_most_likely() const { return options_.temperature <= 0.0 && !adjusts(); }

std::vector<float> Sampler::adjusted(std::span<const float> logits) const {
  std::vector<float> result(logits.begin(), logits.end());
  const auto in_range = [&](TokenId token) {
    return token >= 0 && static_cast<size_t>(token) < result.size();
  };
  for (const auto& [token, bias] : options_.logit_bias) {
    if (in_range(token)) result[static_cast<size_t>(token)] += static_cast<float>(bias);
  }
  if (options_.repetition_penalty != 1.0) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const TokenId token : seen_) {
      if (!in_range(token)) continue;
      float& logit = result[static_cast<size_t>(token)];
      logit = logit < 0.0f ? logit * penalty : logit / penalty;
    }
  }
  for (const auto& [token, times] : generated_) {
    if (!in_range(token)) continue;
    result[static_cast<size_t>(token)] -= static_cast<float>(
        options_.presence_penalty + options_.frequency_penalty * static_cast<double>(times));
  }
  return result;
}

// The tokens that may be chosen with their probabilities, most likely first where an order is
// needed.
std::vector<Sampler::Candidate> Sampler::candidates(std::span<const float> logits) const {
  std::vector<Candidate> list;
  list.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) list.push_back({static_cast<TokenId>(i), logits[i], 0.0});
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < list.size()) {
    std::nth_element(list.begin(), list.begin() + options_.top_k, list.end(), likelier);
    list.resize(static_cast<size_t>(options_.top_k));
  }
  const float best = std::max_element(list.begin(), list.end(), [&](const auto& a, const auto& b) {
                       return likelier(b, a);
                     })->logit;
  double sum = 0.0;
  for (Candidate& candidate : list) {
    candidate.probability =
        std::exp(static_cast<double>(candidate.logit - best) / options_.temperature);
    sum += candidate.probability;
  }
  for (Candidate& candidate : list) candidate.probability /= sum;

  if (options_.top_p < 1.0) {
    std::sort(list.begin(), list.end(), likelier);
    double share = 0.0;
    size_t kept = 0;
    while (kept < list.size() && share < options_.top_p) share += list[kept++].probability;
    list.resize(std::max<size_t>(kept, 1));
  }
  if (options_.min_p > 0.0) {
    const double least = options_.min_p / sum;  // the best has probability 1 / sum
    std::erase_if(list, [&](const Candidate& c) { return c.probability < least; });
  }
  return list;
}

double Sampler::uniform() {
  return static_cast<double>(mixed(options_.seed, chosen_count_) >> 11) * 0x1.0p-53;
}

std::optional<TokenId> Sampler::taken(TokenId token) {
  if (token < 0) return std::nullopt;
  ++generated_[token];
  seen_.insert(token);
  ++chosen_count_;
  return token;
}

std::optional<TokenId> Sampler::next(std::span<const float> logits) {
  std::vector<float> changed;
  if (adjusts()) {
    changed = adjusted(logits);
    logits = changed;
  }
  TokenId token = most_likely(logits);
  if (token >= 0 && options_.temperature > 0.0) {
    const std::vector<Candidate> list = candidates(logits);
    double total = 0.0;
    for (const Candidate& candidate : list) total += candidate.probability;
    double left = uniform() * total;
    token = list.back().token;
    for (const Candidate& candidate : list) {
      left -= candidate.probability;
      if (left < 0.0) {
        token = candidate.token;
        break;
      }
    }
  }
  return taken(token);
}

}  // namespace klotski
