#include "experts/correlation_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

// Calls `action` with the number of every path of the token through the layers before this one.
template <typename Action>
void for_each_path(const PathCounts& paths, size_t routed_layer, const GroupChoices& group,
                   int64_t token, const Action& action) {
  const size_t length = paths.path_length();
  std::span<const ExpertId> choices[kMaxPathLength];
  size_t digits[kMaxPathLength] = {};
  ExpertId path[kMaxPathLength];
  for (size_t i = 0; i < length; ++i) {
    choices[i] = group.token(routed_layer - length + i, token);
    path[i] = choices[i][0];
  }
  while (true) {
    action(paths.path_number({path, length}));
    size_t i = 0;
    while (i < length && ++digits[i] == choices[i].size()) {
      digits[i] = 0;
      path[i] = choices[i][0];
      ++i;
    }
    if (i == length) return;
    path[i] = choices[i][digits[i]];
  }
}

// Adds `weight` times the share of each expert in `counts`. Fixed point, so that ties are ties and
// sums do not depend on their order; false where there are no counts.
bool add_shares(std::span<const uint32_t> counts, uint64_t weight, std::vector<uint64_t>& scores) {
  constexpr int kShareBits = 20;
  uint64_t sum = 0;
  for (const uint32_t count : counts) sum += count;
  if (sum == 0) return false;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    scores[expert] += weight * ((uint64_t{counts[expert]} << kShareBits) / sum);
  }
  return true;
}

// The `count` experts with the highest scores, each with its share of all scores.
std::vector<ExpectedExpert> highest(const std::vector<uint64_t>& scores, int64_t count) {
  std::vector<ExpertId> experts;
  uint64_t sum = 0;
  for (size_t expert = 0; expert < scores.size(); ++expert) {
    sum += scores[expert];
    if (scores[expert] > 0) experts.push_back(ExpertId(static_cast<int64_t>(expert)));
  }
  const int64_t most = std::min(std::max<int64_t>(count, 0), static_cast<int64_t>(experts.size()));
  const auto score_of = [&](ExpertId expert) { return scores[static_cast<size_t>(expert.value)]; };
  const auto better = [&](ExpertId a, ExpertId b) {
    return score_of(a) != score_of(b) ? score_of(a) > score_of(b) : a < b;
  };
  std::partial_sort(experts.begin(), experts.begin() + most, experts.end(), better);
  std::vector<ExpectedExpert> best;
  for (int64_t i = 0; i < most; ++i) {
    const ExpertId expert = experts[static_cast<size_t>(i)];
    best.push_back({expert, static_cast<double>(score_of(expert)) / static_cast<double>(sum)});
  }
  return best;
}

void require_layers(const GroupChoices& group, size_t known, size_t layers) {
  if (known > layers || group.known_layers() < known) {
    fail(ErrorKind::internal, "correlation table: expected choices for {} of {} layers, found {}",
         known, layers, group.known_layers());
  }
}

}  // namespace

PathCounts::PathCounts(RoutedLayer layer, std::span<const RoutedLayer> before) : layer_(layer) {
  uint64_t counters = static_cast<uint64_t>(layer.experts);
  for (const RoutedLayer& previous : before) {
    radices_.push_back(static_cast<uint64_t>(previous.experts));
    if (!multiply_checked(counters, radices_.back(), &counters)) counters = UINT64_MAX;
  }
  all_fit_ = counters <= static_cast<uint64_t>(kMaxPathCounters);
  max_rows_ = std::max<int64_t>(1, kMaxPathCounters / layer.experts);
  if (all_fit_) rows_.resize(counters);
}

uint64_t PathCounts::path_number(std::span<const ExpertId> path) const {
  uint64_t number = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    number = number * radices_[i] + static_cast<uint64_t>(path[i].value);
  }
  return number;
}

std::vector<ExpertId> PathCounts::path(uint64_t number) const {
  std::vector<ExpertId> experts(radices_.size());
  for (size_t i = radices_.size(); i-- > 0; number /= radices_[i]) {
    experts[i] = ExpertId(static_cast<int64_t>(number % radices_[i]));
  }
  return experts;
}

std::span<const uint32_t> PathCounts::counts(uint64_t path) const {
  const auto experts = static_cast<size_t>(layer_.experts);
  if (all_fit_) return std::span(rows_).subspan(path * experts, experts);
  const auto found = row_of_.find(path);
  if (found == row_of_.end()) return {};
  return std::span(rows_).subspan(found->second * experts, experts);
}

std::span<uint32_t> PathCounts::counts_to_change(uint64_t path) {
  const auto experts = static_cast<size_t>(layer_.experts);
  size_t row = path;
  if (!all_fit_) {
    const auto found = row_of_.find(path);
    if (found != row_of_.end()) {
      row = found->second;
    } else {
      row = path_of_row_.size();
      if (static_cast<int64_t>(row) == max_rows_) return {};
      row_of_.emplace(path, row);
      path_of_row_.push_back(path);
      rows_.resize(rows_.size() + experts);
    }
  }
  return std::span(rows_).subspan(row * experts, experts);
}

std::vector<uint64_t> PathCounts::known_paths() const {
  std::vector<uint64_t> paths = path_of_row_;
  if (all_fit_) {
    const auto experts = static_cast<size_t>(layer_.experts);
    for (uint64_t path = 0; path < rows_.size() / experts; ++path) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void PathCounts::halve() {
  for (uint32_t& count : rows_) count /= 2;
}

CorrelationTable::CorrelationTable(RoutingTraceShape shape, int path_length)
    : shape_(std::move(shape)), path_length_(path_length) {
  check_shape(shape_, "correlation table");
  if (path_length < 1 || path_length > kMaxPathLength) {
    fail(ErrorKind::usage, "correlation table: expected a path length from 1 to {}, found {}",
         kMaxPathLength, path_length);
  }
  const std::span<const RoutedLayer> routed(shape_.layers);
  for (size_t i = 0; i < routed.size(); ++i) {
    const size_t length = std::min(i, static_cast<size_t>(path_length));
    layers_.push_back({PathCounts(routed[i], routed.subspan(i - length, length)),
                       std::vector<uint32_t>(static_cast<size_t>(routed[i].experts)), 0});
  }
}

void CorrelationTable::observe_layer(size_t routed_layer, const GroupChoices& group) {
  require_layers(group, routed_layer + 1, layers_.size());
  Layer& layer = layers_[routed_layer];
  for (int64_t token = 0; token < group.tokens(); ++token) {
    const std::span<const ExpertId> chosen = group.token(routed_layer, token);
    for_each_path(layer.paths, routed_layer, group, token, [&](uint64_t path) {
      const std::span<uint32_t> counts = layer.paths.counts_to_change(path);
      if (counts.empty()) return;
      for (const ExpertId expert : chosen) ++counts[static_cast<size_t>(expert.value)];
    });
    for (const ExpertId expert : chosen) ++layer.popularity[static_cast<size_t>(expert.value)];
    if (++layer.tokens == kTokensPerHalving) {
      layer.paths.halve();
      for (uint32_t& count : layer.popularity) count /= 2;
      layer.tokens = 0;
    }
  }
}

std::vector<ExpectedExpert> CorrelationTable::hot_experts(size_t routed_layer,
                                                          const GroupChoices& group,
                                                          int64_t count) const {
  require_layers(group, routed_layer, layers_.size());
  const Layer& layer = layers_[routed_layer];
  // Each different path is looked up once, with the number of times it was taken.
  std::vector<uint64_t> taken;
  for (int64_t token = 0; token < group.tokens(); ++token) {
    for_each_path(layer.paths, routed_layer, group, token,
                  [&](uint64_t path) { taken.push_back(path); });
  }
  std::sort(taken.begin(), taken.end());
  std::vector<uint64_t> scores(layer.popularity.size());
  uint64_t unknown = 0;
  for (size_t begin = 0, end = 0; begin < taken.size(); begin = end) {
    while (end < taken.size() && taken[end] == taken[begin]) ++end;
    if (!add_shares(layer.paths.counts(taken[begin]), end - begin, scores)) unknown += end - begin;
  }
  if (unknown > 0) add_shares(layer.popularity, unknown, scores);
  return highest(scores, count);
}

std::vector<double> CorrelationTable::probabilities(size_t routed_layer, const GroupChoices& group,
                                                    int64_t token) const {
  const Layer& layer = layers_[routed_layer];
  std::vector<uint64_t> scores(layer.popularity.size());
  if (routed_layer > group.known_layers()) {
    add_shares(layer.popularity, 1, scores);
  } else {
    for_each_path(layer.paths, routed_layer, group, token, [&](uint64_t path) {
      if (!add_shares(layer.paths.counts(path), 1, scores)) add_shares(layer.popularity, 1, scores);
    });
  }
  const auto sum = static_cast<double>(std::accumulate(scores.begin(), scores.end(), uint64_t{0}));
  std::vector<double> probabilities;
  for (const uint64_t score : scores) {
    const double share = sum > 0 ? static_cast<double>(score) / sum : 0.0;
    probabilities.push_back(std::min(1.0, share * layer.paths.layer().top_k));
  }
  return probabilities;
}

}  // namespace klotski
