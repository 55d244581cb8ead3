#include "experts/path_training.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "base/noise.h"
#include "base/testing.h"

namespace klotski {
namespace {

// Text in which layer 0 follows from the token and layer 1 from the token before it.
TracedSequences regular_text(int64_t sequences) {
  TracedSequences all{{"regular", {{LayerId(0), 6, 1}, {LayerId(1), 6, 1}}}};
  const uint64_t key = noise_key(1, "text");
  uint64_t drawn = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    TracedSequence sequence;
    TokenId before = 0;
    for (int i = 0; i < 48; ++i) {
      const auto token = static_cast<TokenId>(noise_bits(key, drawn++) % 6);
      sequence.tokens.push_back(token);
      sequence.choices.push_back(static_cast<uint16_t>(5 - token));
      sequence.choices.push_back(static_cast<uint16_t>(before));
      before = token;
    }
    all.sequences.push_back(std::move(sequence));
  }
  return all;
}

PathTrainingOptions quick() { return {.epochs = 12, .batch_chunks = 4, .width = 16}; }

// For tests that do not need a network that has learnt.
PathTrainingOptions short_training() { return {.epochs = 3, .batch_chunks = 4, .width = 16}; }

class PathTrainingTest : public testing::Test {
 protected:
  ~PathTrainingTest() override { std::filesystem::remove(checkpoint_); }

  SplitSequences data_ = hold_out(regular_text(200), 0.1);
  SplitSequences small_ = hold_out(regular_text(40), 0.2);
  std::filesystem::path checkpoint_ =
      std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_checkpoint");
};

TEST_F(PathTrainingTest, LearnsWhatPopularityAndCorrelationCannot) {
  PathTraining training(data_, quick(), nullptr);
  std::vector<PathTrainingProgress> told;
  EXPECT_TRUE(training.run({.progress = [&](const auto& progress) { told.push_back(progress); }}));
  const Recall recall = path_recall(training.best(), data_.held_out, nullptr);
  EXPECT_GT(recall.by_layer[0], 0.99);
  EXPECT_GT(recall.by_layer[1], 0.95);
  EXPECT_DOUBLE_EQ(recall.all, training.best_recall());
  EXPECT_LT(popularity_recall(data_.training, data_.held_out).all, 0.4);
  EXPECT_LT(correlation_recall(data_.training, data_.held_out).by_layer[1], 0.4);
  ASSERT_EQ(std::ssize(told), training.total_steps());
  EXPECT_GT(told.front().seconds_left, 0.0);
  EXPECT_EQ(told.back().seconds_left, 0.0);
  EXPECT_LT(told.back().loss, told.front().loss / 4);
}

TEST_F(PathTrainingTest, ThreadsChangeNoBit) {
  ThreadPool pool(3);
  PathTrainingOptions options = short_training();
  options.width = 32;
  PathTraining alone(small_, options, nullptr);
  PathTraining together(small_, options, &pool);
  alone.run({});
  together.run({});
  EXPECT_EQ(alone.best().bytes(), together.best().bytes());
}

TEST_F(PathTrainingTest, ResumesBitForBit) {
  PathTraining whole(small_, short_training(), nullptr);
  whole.run({});
  {
    PathTraining part(small_, short_training(), nullptr);
    int steps = 0;
    EXPECT_FALSE(part.run({.stop = [&] { return ++steps == 20; }, .checkpoint = checkpoint_}));
    EXPECT_EQ(part.steps(), 20);
    EXPECT_GT(part.best_recall(), 0.0);
  }
  PathTraining rest(small_, short_training(), nullptr);
  rest.load_checkpoint(checkpoint_);
  EXPECT_EQ(rest.steps(), 20);
  EXPECT_TRUE(rest.run({.checkpoint = checkpoint_}));
  EXPECT_EQ(rest.best().bytes(), whole.best().bytes());
  EXPECT_EQ(rest.best_recall(), whole.best_recall());
  EXPECT_TRUE(std::filesystem::exists(checkpoint_));  // the network is not in a file yet
}

TEST_F(PathTrainingTest, StoppedAtOnceThereIsABestNetwork) {
  PathTraining training(small_, short_training(), nullptr);
  EXPECT_FALSE(training.run({.stop = [] { return true; }}));
  EXPECT_EQ(training.steps(), 1);
  EXPECT_GE(training.best_recall(), 0.0);
}

TEST_F(PathTrainingTest, CheckpointsOfOthersAndDamagedOnesAreRefused) {
  PathTraining training(small_, short_training(), nullptr);
  training.step();
  training.save_checkpoint(checkpoint_);
  const auto loading_refused = [&](const PathTrainingOptions& options, const SplitSequences& data) {
    PathTraining other(data, options, nullptr);
    return refusal([&] { other.load_checkpoint(checkpoint_); });
  };
  EXPECT_EQ(loading_refused(short_training(), small_), "");
  PathTrainingOptions longer = short_training();
  longer.epochs = 4;
  EXPECT_NE(loading_refused(longer, small_).find("other traces or options"), std::string::npos);
  SplitSequences changed = small_;
  changed.training.sequences[3].choices[2] ^= 1;
  EXPECT_NE(loading_refused(short_training(), changed).find("other traces or options"),
            std::string::npos);
  const std::string bytes = read_text_file(checkpoint_, 1 << 24);
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 60) {
    std::ofstream(checkpoint_, std::ios::binary) << bytes.substr(0, size);
    EXPECT_NE(loading_refused(short_training(), small_), "") << size;
  }
}

}  // namespace
}  // namespace klotski
