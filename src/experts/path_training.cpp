#include "experts/path_training.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <utility>

#include "base/noise.h"

namespace klotski {

namespace {

constexpr int64_t kWarmUpSteps = 20;
// Rows of the embedding at most: 16 MiB of a width of 64.
constexpr size_t kMostKnownTokens = 1 << 16;

// Tokens that come up at least twice, so that the row of unknown tokens is trained by those that
// come up once; the most frequent where there are too many.
std::vector<TokenId> frequent_tokens(const TracedSequences& training) {
  std::map<TokenId, int64_t> counts;
  for (const TracedSequence& sequence : training.sequences) {
    for (const TokenId token : sequence.tokens) ++counts[token];
  }
  std::vector<std::pair<int64_t, TokenId>> found;
  for (const auto& [token, count] : counts) {
    if (count >= 2) found.emplace_back(-count, token);
  }
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMostKnownTokens));
  std::vector<TokenId> tokens;
  for (const auto& [count, token] : found) tokens.push_back(token);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

PathNetwork network_to_train(const TracedSequences& training, const PathTrainingOptions& options) {
  PathNetworkShape shape{.routing = training.shape,
                         .width = options.width,
                         .inner = 2 * options.width,
                         .known_tokens = frequent_tokens(training)};
  check_shape(shape, "predictor");
  PathNetwork network(std::move(shape));
  network.initialise(options.seed, training.shares());
  return network;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

PathTraining::PathTraining(const SplitSequences& data, const PathTrainingOptions& options,
                           ThreadPool* pool)
    : data_(data),
      options_(options),
      pool_(pool),
      network_(network_to_train(data.training, options)),
      adam_(network_.parameters(), {.learning_rate = options.learning_rate}),
      best_(network_) {
  chunks_ = chunks_of(data.training, network_.shape().chunk);
}

int64_t PathTraining::steps_per_epoch() const {
  return (std::ssize(chunks_) + options_.batch_chunks - 1) / options_.batch_chunks;
}

// The order depends on the seed and the epoch only, so that a resumed training finds it again.
void PathTraining::shuffle(int64_t epoch) {
  if (epoch == shuffled_epoch_) return;
  shuffled_epoch_ = epoch;
  order_.resize(chunks_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  const uint64_t key = noise_key(options_.seed, fmt::format("epoch {}", epoch));
  for (size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[noise_bits(key, i) % i]);
}

double PathTraining::step() {
  const int64_t place = steps() % steps_per_epoch();
  shuffle(steps() / steps_per_epoch());
  const auto begin = static_cast<size_t>(place * options_.batch_chunks);
  const size_t end = std::min(begin + static_cast<size_t>(options_.batch_chunks), order_.size());
  std::vector<TracedChunk> batch;
  std::vector<PathChunk> inputs;
  for (size_t i = begin; i < end; ++i) {
    batch.push_back(chunks_[order_[i]]);
    inputs.push_back(batch.back().path_chunk(static_cast<size_t>(network_.shape().chunk)));
  }
  neural::Graph graph(neural::Graph::Mode::train, pool_);
  const neural::Node logits = network_.logits(graph, inputs);
  const double loss = graph.binary_cross_entropy(logits, targets_of(data_.training, batch));
  graph.backward();
  adam_.step(neural::cosine_scale(steps(), kWarmUpSteps, total_steps()), pool_);
  if (steps() % steps_per_epoch() == 0) judge();
  return loss;
}

void PathTraining::judge() {
  const double recall = path_recall(network_, data_.held_out, pool_).all;
  if (recall <= best_recall_) return;
  best_recall_ = recall;
  best_ = network_;
  for (neural::Parameter* parameter : best_.parameters()) parameter->gradient = {};
}

bool PathTraining::run(const PathTrainingHooks& hooks) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t first = steps();
  const auto checkpoint = [&] {
    if (!hooks.checkpoint.empty()) save_checkpoint(hooks.checkpoint);
  };
  double losses = 0.0;  // of the steps of this epoch
  int64_t counted = 0;
  while (!finished()) {
    losses += step();
    ++counted;
    const double pace = seconds_since(begin) / static_cast<double>(steps() - first);
    if (hooks.progress) {
      hooks.progress({.steps = steps(),
                      .total_steps = total_steps(),
                      .loss = losses / static_cast<double>(counted),
                      .best_recall = std::max(0.0, best_recall_),
                      .seconds_left = pace * static_cast<double>(total_steps() - steps())});
    }
    if (hooks.stop && hooks.stop()) break;
    if (steps() % steps_per_epoch() != 0) continue;
    checkpoint();
    losses = 0.0;
    counted = 0;
  }
  if (!finished()) {
    checkpoint();
    judge();
  }
  return finished();
}

}  // namespace klotski
