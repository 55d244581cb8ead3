#include "planner/expert_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/noise.h"

namespace klotski {

namespace {

// A number between 0 and 1 that depends on the arguments alone, on every machine.
double uniform(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t bits = 0;
  for (const uint64_t part : {a, b, c}) bits = noise_bits(kNoiseStep, bits ^ part);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// About normally distributed with deviation one: the sum of three numbers between -1 and 1.
double deviates(LayerId layer, int64_t micro_batch, int64_t pass, size_t expert) {
  double sum = 0.0;
  for (uint64_t i = 1; i <= 3; ++i) {
    sum += 2.0 * uniform(static_cast<uint64_t>(layer.value) * 131 + expert + 1,
                         static_cast<uint64_t>(micro_batch), static_cast<uint64_t>(pass) * 4 + i) -
           1.0;
  }
  return sum;
}

}  // namespace

ExpertShares::ExpertShares(const ModelDescription& model) {
  for (const Layer& layer : model.layers) {
    const auto experts = static_cast<size_t>(layer.feed_forward.experts);
    shares_.emplace_back(experts, 1.0 / static_cast<double>(experts));
  }
}

ExpertShares::ExpertShares(const ModelDescription& model, std::vector<std::vector<double>> shares)
    : shares_(std::move(shares)) {
  if (shares_.size() != model.layers.size()) {
    fail(ErrorKind::internal, "shares of experts: expected {} layers, found {}",
         model.layers.size(), shares_.size());
  }
  for (size_t j = 0; j < shares_.size(); ++j) {
    const double sum = std::accumulate(shares_[j].begin(), shares_[j].end(), 0.0);
    if (std::ssize(shares_[j]) != model.layers[j].feed_forward.experts || !(sum > 0.0)) {
      fail(ErrorKind::internal, "shares of experts: layer {} has {} of them, sum {}", j,
           shares_[j].size(), sum);
    }
    for (double& share : shares_[j]) share /= sum;
  }
}

std::vector<double> ExpertShares::rows(LayerId layer, int64_t micro_batch, int64_t pass,
                                       double rows, int64_t top_k) const {
  std::vector<double> result;
  result.reserve(of(layer).size());
  // Experts lie on a line one after the other, each as long as it is likely to be activated; an
  // expert is activated where a whole number lies in its stretch.
  double end = uniform(static_cast<uint64_t>(layer.value), static_cast<uint64_t>(micro_batch),
                       static_cast<uint64_t>(pass));
  for (const double share : of(layer)) {
    const double chosen = std::min(1.0, share * static_cast<double>(top_k));  // by one row
    const double activated = 1.0 - std::pow(1.0 - chosen, std::max(rows, 1.0));
    const double begin = end;
    end += activated + 1e-9;
    if (std::floor(end) == std::floor(begin)) {
      result.push_back(0.0);
      continue;
    }
    // Rows of activated experts vary around their mean: more rows cost more than fewer save, since
    // time grows in steps. Where few rows are expected, most of the variation is whether there are
    // any.
    constexpr double kFew = 4.0;
    const double mean = rows * chosen / activated;
    if (mean < kFew) {
      result.push_back(mean);
      continue;
    }
    const double deviation = std::sqrt(rows * chosen * (1.0 - chosen));
    const double off = deviation * deviates(layer, micro_batch, pass, result.size());
    result.push_back(std::max(1.0, mean + off));
  }
  return result;
}

}  // namespace klotski
