#include "experts/activation_predictor.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace klotski {

namespace {

// Sequences that are traced at the same time; of more those end that have the lowest numbers and
// are not in the pass at hand.
constexpr size_t kMostRunning = 4096;
// Tokens of a sequence with which its own matrix counts as much as the matched ones.
constexpr double kTokensLikeMatch = 16;
// Distances that differ by less count as the same: several matrices match.
constexpr double kSameDistance = 1e-6;

// Adds `weight` times the row's shares of its sum.
void add_normalised(std::span<const float> row, double weight, std::vector<double>& to) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  if (sum == 0) return;
  for (size_t e = 0; e < row.size(); ++e) to[e] += weight * row[e] / sum;
}

}  // namespace

ActivationPredictor::Trace::Trace(const RoutingTraceShape& shape)
    : request(shape), iteration(shape) {}

ActivationPredictor::ActivationPredictor(ActivationHistory& history)
    : ExpertPredictor(history.decode.shape()), history_(history) {}

const ActivationPredictor::Trace& ActivationPredictor::trace_of(const PassToken& token) const {
  return running_.at(token.sequence)[token.decodes ? 1 : 0];
}

ActivationPredictor::Trace& ActivationPredictor::trace_of(const PassToken& token) {
  return running_.at(token.sequence)[token.decodes ? 1 : 0];
}

std::vector<PassToken> ActivationPredictor::sequences() const {
  std::vector<PassToken> first;
  for (const PassToken& token : tokens()) {
    if (first.empty() || first.back().sequence != token.sequence) first.push_back(token);
  }
  return first;
}

void ActivationPredictor::pass_begun() {
  for (const PassToken& token : sequences()) {
    if (!running_.contains(token.sequence)) {
      running_.emplace(token.sequence, Traces{Trace(shape()), Trace(shape())});
    }
    Trace& trace = trace_of(token);
    // A pass that was given up left an iteration behind.
    if (!trace.iteration.empty()) {
      trace.iteration.clear();
      trace.version = -1;
    }
    match(trace, collection(token.decodes), 0);
  }
  if (running_.size() > kMostRunning) end_oldest();
}

void ActivationPredictor::end_oldest() {
  std::set<int64_t> in_pass;
  for (const PassToken& token : sequences()) in_pass.insert(token.sequence);
  std::vector<int64_t> others;
  for (const auto& [sequence, traces] : running_) {
    if (!in_pass.contains(sequence)) others.push_back(sequence);
  }
  for (const int64_t sequence : others) {
    if (running_.size() <= kMostRunning) return;
    end_sequence(sequence);
  }
}

void ActivationPredictor::learn(size_t routed_layer) {
  const bool last = routed_layer + 1 == shape().layers.size();
  for (int64_t i = 0; i < choices().tokens(); ++i) {
    const PassToken& token = tokens()[static_cast<size_t>(i)];
    Trace& trace = trace_of(token);
    for (const ExpertId expert : choices().token(routed_layer, i)) {
      add_choice(trace, collection(token.decodes), routed_layer, expert);
    }
    if (last) ++trace.tokens;
  }
  for (const PassToken& token : sequences()) {
    Trace& trace = trace_of(token);
    if (last && !trace.iteration.empty()) {
      trace.request.add(trace.iteration);
      trace.iteration.clear();
    }
    if (!last) match(trace, collection(token.decodes), routed_layer + 1);
  }
}

void ActivationPredictor::add_choice(Trace& trace, const ActivationCollection& past,
                                     size_t routed_layer, ExpertId expert) {
  const auto e = static_cast<size_t>(expert.value);
  const double before =
      trace.request.layer(routed_layer)[e] + trace.iteration.layer(routed_layer)[e];
  trace.seen_squared += 2 * before + 1;
  for (size_t i = 0; i < trace.dots.size(); ++i) {
    trace.dots[i] += past[static_cast<int64_t>(i)].layer(routed_layer)[e];
  }
  trace.iteration.count(routed_layer, std::span(&expert, 1));
}

// Finds the stored matrices nearest to the trace. `known_layers`: of the pass at hand.
void ActivationPredictor::match(Trace& trace, const ActivationCollection& past,
                                size_t known_layers) {
  if (trace.version != past.version()) {
    ActivationMatrix seen = trace.request;
    seen.add(trace.iteration);
    const size_t all = seen.layers();
    trace.dots.clear();
    for (int64_t i = 0; i < past.size(); ++i) trace.dots.push_back(dot_product(seen, past[i], all));
    trace.seen_squared = dot_product(seen, seen, all);
    trace.version = past.version();
  }
  const size_t layers = trace.tokens > 0 ? shape().layers.size() : known_layers;
  std::vector<double> distances;
  for (int64_t i = 0; i < past.size(); ++i) {
    distances.push_back(cosine_distance(trace.dots[static_cast<size_t>(i)], trace.seen_squared,
                                        past.squared(i, layers)));
  }
  trace.matched.clear();
  if (distances.empty()) return;
  const double least = *std::min_element(distances.begin(), distances.end());
  for (size_t i = 0; i < distances.size(); ++i) {
    if (distances[i] <= least + kSameDistance) trace.matched.push_back(static_cast<int64_t>(i));
  }
}

std::vector<double> ActivationPredictor::estimate(size_t routed_layer, int64_t token) const {
  const PassToken& of = tokens()[static_cast<size_t>(token)];
  const Trace& trace = trace_of(of);
  const ActivationCollection& past = of.decodes ? history_.decode : history_.prompt;
  const RoutedLayer& layer = shape().layers[routed_layer];
  std::vector<float> sum(static_cast<size_t>(layer.experts));
  for (const int64_t i : trace.matched) {
    const std::span<const float> row = past[i].layer(routed_layer);
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += row[e];
  }
  const double matched = trace.matched.empty() ? 0.0 : kTokensLikeMatch;
  const auto own = static_cast<double>(trace.tokens);
  std::vector<double> probability(sum.size());
  if (matched + own == 0) return probability;
  add_normalised(sum, matched / (matched + own), probability);
  add_normalised(trace.request.layer(routed_layer), own / (matched + own), probability);
  for (double& one : probability) one = std::min(1.0, one * layer.top_k);
  return probability;
}

// A sequence's tokens choose alike: what is estimated for the token at hand holds for the next.
std::vector<double> ActivationPredictor::next_pass_probabilities(LayerId layer) const {
  const int64_t routed = routed_index(layer);
  if (routed < 0) return {};
  std::vector<double> none;
  for (int64_t i = 0; i < std::ssize(tokens()); ++i) {
    // Each sequence has one token in the next pass; in this one its tokens follow each other.
    const auto at = static_cast<size_t>(i);
    if (i > 0 && tokens()[at].sequence == tokens()[at - 1].sequence) continue;
    const std::vector<double> of_token = estimate(static_cast<size_t>(routed), i);
    none.resize(of_token.size(), 1.0);
    for (size_t e = 0; e < none.size(); ++e) none[e] *= 1.0 - of_token[e];
  }
  for (double& probability : none) probability = 1.0 - probability;
  return none;
}

void ActivationPredictor::end_sequence(int64_t sequence) {
  const auto found = running_.find(sequence);
  if (found == running_.end()) return;
  history_.prompt.add(found->second[0].request);
  history_.decode.add(found->second[1].request);
  running_.erase(found);
}

}  // namespace klotski
