#include "experts/traced_sequences.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/testing.h"
#include "experts/path_chunks.h"
#include "experts/prediction_recall.h"

namespace klotski {
namespace {

RoutingTraceShape two_layers() { return {"traced", {{LayerId(0), 3, 2}, {LayerId(2), 2, 1}}}; }

// A sequence of tokens 0, 1, ... with the choices of each: two of layer 0, one of layer 2.
TracedSequence traced(std::vector<uint16_t> choices) {
  TracedSequence sequence{{}, std::move(choices)};
  for (size_t i = 0; i < sequence.choices.size() / 3; ++i) {
    sequence.tokens.push_back(static_cast<TokenId>(i));
  }
  return sequence;
}

class TraceFiles : public testing::Test {
 protected:
  ~TraceFiles() override {
    for (const auto& path : paths_) std::filesystem::remove(path);
  }

  void write(const RoutingTraceShape& shape, const std::vector<RoutingRecord>& records) {
    paths_.push_back(std::filesystem::path(testing::TempDir()) /
                     fmt::format("{}_traced_{}", ::getpid(), paths_.size()));
    std::ofstream out(paths_.back(), std::ios::binary);
    RoutingTraceWriter writer(out, shape);
    for (const RoutingRecord& record : records) writer.append(record);
  }

  std::vector<std::filesystem::path> paths_;
};

TEST_F(TraceFiles, MixedSequencesOfSeveralFilesAreSorted) {
  const std::vector<ExpertId> choices = {ExpertId(2), ExpertId(0), ExpertId(1)};
  write(two_layers(), {{7, 0, 10, choices}, {3, 0, 20, choices}, {7, 1, 11, choices}});
  write(two_layers(), {{7, 0, 30, choices}});
  const TracedSequences all = read_traces(paths_);
  ASSERT_EQ(all.sequences.size(), 3u);
  EXPECT_EQ(all.sequences[0].tokens, (std::vector<TokenId>{10, 11}));
  EXPECT_EQ(all.sequences[1].tokens, (std::vector<TokenId>{20}));
  EXPECT_EQ(all.sequences[2].tokens, (std::vector<TokenId>{30}));
  EXPECT_EQ(all.tokens(), 4);
  EXPECT_EQ(all.choices(all.sequences[0], 1, 0)[0], 2);
  EXPECT_EQ(all.choices(all.sequences[0], 1, 1)[0], 1);
}

TEST_F(TraceFiles, TracesOfAnotherModelAreRefused) {
  write(two_layers(), {});
  write({"other", {{LayerId(0), 4, 2}}}, {});
  EXPECT_NE(refusal([&] { read_traces(paths_); }).find("'other'"), std::string::npos);
}

TEST(TracedSequences, SharesByHand) {
  TracedSequences all{two_layers()};
  all.sequences.push_back(traced({0, 1, 1, 0, 2, 1}));
  all.sequences.push_back(traced({0, 1, 0, 1, 2, 1}));
  EXPECT_EQ(all.shares(), (std::vector<double>{0.75, 0.75, 0.5, 0.25, 0.75}));
}

TEST(TracedSequences, HoldsOutEvenly) {
  TracedSequences all{two_layers()};
  for (uint16_t i = 0; i < 20; ++i) all.sequences.push_back(traced({0, 1, 0}));
  for (size_t i = 0; i < 20; ++i) all.sequences[i].tokens[0] = static_cast<TokenId>(i);
  const SplitSequences split = hold_out(all, 0.1);
  ASSERT_EQ(split.held_out.sequences.size(), 2u);
  EXPECT_EQ(split.held_out.sequences[0].tokens[0], 9);
  EXPECT_EQ(split.held_out.sequences[1].tokens[0], 19);
  EXPECT_EQ(split.training.sequences.size(), 18u);
  all.sequences.resize(2);
  EXPECT_EQ(hold_out(all, 0.001).held_out.sequences.size(), 1u);
  EXPECT_EQ(hold_out(all, 0.999).training.sequences.size(), 1u);
  all.sequences.resize(1);
  EXPECT_NE(refusal([&] { hold_out(all, 0.1); }).find("at least 2"), std::string::npos);
}

TEST(TracedSequences, ChunksHaveTheWholeChunkBefore) {
  TracedSequences all{two_layers()};
  all.sequences.push_back(traced({0, 1, 0, 1, 2, 1, 0, 2, 1}));
  const auto chunks = chunks_of(all, 2);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_TRUE(chunks[0].path_chunk(2).before.empty());
  EXPECT_EQ(chunks[1].path_chunk(2).before[1], 1);
  EXPECT_EQ(chunks[1].path_chunk(2).tokens.size(), 1u);
  const neural::Matrix targets = targets_of(all, chunks);
  EXPECT_EQ(targets.values, (std::vector<float>{1, 1, 0, 1, 0,  //
                                                0, 1, 1, 0, 1,  //
                                                1, 0, 1, 0, 1}));
}

// Layer 0: 0 and 1 are most popular; layer 2: after 1 comes 0, after 2 comes 1.
TEST(PredictionRecall, PopularityAndCorrelationByHand) {
  TracedSequences learnt{two_layers()};
  learnt.sequences.push_back(traced({0, 1, 0, 0, 1, 0, 0, 2, 1, 1, 0, 0}));
  TracedSequences judged{two_layers()};
  judged.sequences.push_back(traced({0, 1, 0, 0, 2, 1}));
  const Recall popularity = popularity_recall(learnt, judged);
  EXPECT_EQ(popularity.by_layer, (std::vector<double>{0.75, 0.5}));
  EXPECT_DOUBLE_EQ(popularity.all, 4.0 / 6.0);
  const Recall correlation = correlation_recall(learnt, judged);
  EXPECT_EQ(correlation.by_layer, (std::vector<double>{0.75, 1.0}));
}

}  // namespace
}  // namespace klotski
