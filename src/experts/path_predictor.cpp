#include "experts/path_predictor.h"

#include <algorithm>

namespace klotski {

PathPredictor::PathPredictor(PathNetwork& network)
    : ExpertPredictor(network.shape().routing), network_(network) {
  for (size_t i = 0; i < shape().layers.size(); ++i) {
    first_expert_.push_back(network.shape().first_expert(i));
  }
}

int64_t PathPredictor::run_length(int64_t first) const {
  int64_t length = 1;
  for (; first + length < std::ssize(tokens()); ++length) {
    const PassToken& last = tokens()[static_cast<size_t>(first + length - 1)];
    const PassToken& next = tokens()[static_cast<size_t>(first + length)];
    if (next.sequence != last.sequence || next.position != last.position + 1) break;
  }
  return length;
}

// Where the sequence stands before the token. A sequence whose earlier tokens are not known is read
// as if it began here.
PathPredictor::Reading& PathPredictor::reading_before(const PassToken& first) {
  Sequence& sequence = sequences_[first.sequence];
  if (sequence.last_pass != passes_) {
    sequence.last_pass = passes_;
    if (first.position == sequence.before.next_position) sequence.now = sequence.before;
    if (first.position != sequence.now.next_position) sequence.now = {};
    sequence.before = sequence.now;
    sequence.before.next_position = first.position;
  } else if (first.position != sequence.now.next_position) {
    sequence.now = {};
  }
  return sequence.now;
}

void PathPredictor::pass_begun() {
  ++passes_;
  const int64_t count = std::ssize(tokens());
  probabilities_ = neural::Matrix(count, network_.shape().experts());
  for (int64_t first = 0; first < count;) {
    const int64_t length = run_length(first);
    std::vector<TokenId> run;
    for (int64_t i = first; i < first + length; ++i) {
      run.push_back(tokens()[static_cast<size_t>(i)].token);
    }
    const PassToken& begin = tokens()[static_cast<size_t>(first)];
    Reading& reading = reading_before(begin);
    const neural::Matrix rows = network_.extend(reading.state, run);
    reading.next_position = begin.position + length;
    std::copy(rows.values.begin(), rows.values.end(), probabilities_.row(first));
    first += length;
  }
}

std::vector<double> PathPredictor::estimate(size_t routed_layer, int64_t token) const {
  const float* first = probabilities_.row(token) + first_expert_[routed_layer];
  return {first, first + shape().layers[routed_layer].experts};
}

RequestShares PathPredictor::expected_shares(std::span<const TokenId> tokens) const {
  PathState state;
  const neural::Matrix probabilities = network_.extend(state, tokens);
  RequestShares shares(static_cast<size_t>(shape().experts()));
  for (int64_t row = 0; row < probabilities.rows; ++row) {
    const float* of_token = probabilities.row(row);
    for (size_t e = 0; e < shares.size(); ++e) {
      shares[e] += of_token[e] / static_cast<float>(probabilities.rows);
    }
  }
  return shares;
}

}  // namespace klotski
