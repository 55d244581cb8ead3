#pragma once

// Trains a routing-path predictor on routing traces (ExpertFlow, section 3.1.2): binary
// cross-entropy of every expert of every layer, Adam with a cosine schedule.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "experts/path_chunks.h"
#include "experts/prediction_recall.h"
#include "neural/adam.h"

namespace klotski {

struct PathTrainingOptions {
  int64_t epochs = 10;        // times that every training sequence is read
  int64_t batch_chunks = 16;  // chunks of a step
  int64_t width = 64;         // of the network; its feed-forward parts are twice as wide
  double learning_rate = 0.01;
  uint64_t seed = 1;

  bool operator==(const PathTrainingOptions&) const = default;
};

struct PathTrainingProgress {
  int64_t steps = 0;
  int64_t total_steps = 0;
  double loss = 0.0;          // mean of the last epoch's steps so far
  double best_recall = 0.0;   // on the held-out sequences; 0 before the first epoch's end
  double seconds_left = 0.0;  // at the pace so far
};

struct PathTrainingHooks {
  std::function<void(const PathTrainingProgress&)> progress{};  // after every step
  std::function<bool()> stop{};        // asked after every step: whether to end early
  std::filesystem::path checkpoint{};  // kept up to date, where it is not empty
};

class PathTraining {
 public:
  // `data` and the pool, which may be null, must outlive the training. The result does not depend
  // on the number of threads.
  PathTraining(const SplitSequences& data, const PathTrainingOptions& options, ThreadPool* pool);

  PathTraining(const PathTraining&) = delete;
  PathTraining& operator=(const PathTraining&) = delete;

  int64_t steps() const { return adam_.steps(); }
  int64_t total_steps() const { return options_.epochs * steps_per_epoch(); }
  bool finished() const { return steps() >= total_steps(); }

  // Trains with the next batch: its loss. After the last batch of an epoch the network is judged on
  // the held-out sequences and kept if it is the best so far.
  double step();

  // Steps until the training is finished or told to stop: whether it is finished. The checkpoint is
  // written after every epoch and at a stop; the caller removes it once the network is safe. At a
  // stop the network at hand is judged too, so that there is always a best one.
  bool run(const PathTrainingHooks& hooks);

  // The network with the highest recall on the held-out sequences.
  PathNetwork& best() { return best_; }
  double best_recall() const { return best_recall_; }

  // Writes all that a later process needs to go on bit for bit as if training had not stopped.
  void save_checkpoint(const std::filesystem::path& path) const;
  // Throws where the checkpoint is damaged or of other traces or options.
  void load_checkpoint(const std::filesystem::path& path);

 private:
  int64_t steps_per_epoch() const;
  void shuffle(int64_t epoch);
  void judge();
  uint64_t fingerprint() const;
  std::string checkpoint_bytes() const;
  void parse_checkpoint(std::span<const std::byte> bytes, const std::string& what);

  const SplitSequences& data_;
  PathTrainingOptions options_;
  ThreadPool* pool_;
  std::vector<TracedChunk> chunks_;  // of the training sequences
  std::vector<size_t> order_;        // of the chunks, in the epoch at hand
  int64_t shuffled_epoch_ = -1;
  PathNetwork network_;
  neural::Adam adam_;
  PathNetwork best_;
  double best_recall_ = -1.0;
};

}  // namespace klotski
