// Memory that is booked as sequences grow: who is admitted, who is preempted, who may overtake
// whom.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/engine.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

class GrowthTest : public ::testing::Test {
 protected:
  GrowthTest() : model_(test_model("mixtral")) {}

  Engine engine(int64_t page_count, const EngineOptions& options,
                const PipelineOptions& pipeline = {}) {
    constexpr int64_t sequences = 8;
    const RunLimits limits{
        .strategy = Strategy::klotski,
        .precision = Precision::f32,
        .kv_bytes = static_cast<uint64_t>(page_count) *
                    PagedKvCache::page_bytes(model_.description, kv_type(Precision::f32)),
        .micro_batch = sequences,
        .micro_batches = 1};
    const Workload workload{.sequences = sequences, .tokens_per_sequence = 64, .prompt_tokens = 64};
    Target target{.ops = reference_processor()};
    prepared_ = std::make_unique<PreparedModel>(model_.description, model_.checkpoint, target,
                                                model_.plan(limits, workload, pipeline), pipeline);
    return Engine(prepared_->pipeline(), options);
  }
  static Request request(int64_t prompt, int64_t max_tokens) {
    return {.prompt = std::vector<TokenId>(static_cast<size_t>(prompt), 3),
            .sampling = {},
            .max_tokens = max_tokens,
            .stop_tokens = {}};
  }

  TestModel model_;
  std::unique_ptr<PreparedModel> prepared_;
};

constexpr EngineOptions kGrows{.booking = KvBooking::as_it_grows};

// The order in which sequences end, and the tokens of each.
struct Ended {
  std::vector<int32_t> order;
  std::map<int32_t, std::vector<TokenId>> tokens;
};

Ended run_to_the_end(Engine& engine) {
  Ended ended;
  while (!engine.idle()) {
    for (const Progress& progress : engine.step()) {
      ended.tokens[progress.sequence.value].push_back(progress.token);
      if (progress.finish != Finish::not_yet) ended.order.push_back(progress.sequence.value);
    }
  }
  return ended;
}

TEST_F(GrowthTest, MoreRunWhereLongestAnswersAreNotBooked) {
  Engine whole = engine(10, {});
  for (int i = 0; i < 6; ++i) whole.submit(request(8, 60));
  whole.step();
  EXPECT_EQ(whole.running(), 2) << "five pages each";
  Engine grows = engine(10, kGrows);
  for (int i = 0; i < 6; ++i) grows.submit(request(8, 60));
  grows.step();
  EXPECT_EQ(grows.running(), 5) << "a page each, and one to spare for each that runs";
}

// The last to come gives way, is computed anew, and no token changes.
TEST_F(GrowthTest, TheYoungestIsPreempted) {
  Engine whole = engine(40, {});
  for (int i = 0; i < 4; ++i) whole.submit(request(10 + i, 50));
  const Ended expected = run_to_the_end(whole);
  EXPECT_EQ(whole.counters().preemptions, 0);

  Engine grows = engine(10, kGrows);
  for (int i = 0; i < 4; ++i) grows.submit(request(10 + i, 50));
  const Ended ended = run_to_the_end(grows);
  EXPECT_GT(grows.counters().preemptions, 0);
  EXPECT_EQ(ended.order, (std::vector<int32_t>{0, 1, 2, 3})) << "the oldest is never preempted";
  EXPECT_EQ(ended.tokens, expected.tokens);
  EXPECT_EQ(prepared_->pipeline().cache().pages_in_use(), 0);
}

// Sequences that find no page in memory and none in the file are preempted there, whichever it is;
// one that outgrows the memory goes on in the file.
TEST_F(GrowthTest, SequencesGrowInTheFileToo) {
  Engine whole = engine(40, {});
  for (int i = 0; i < 6; ++i) whole.submit(request(10 + i, 48));
  const Ended expected = run_to_the_end(whole);
  PipelineOptions spilling;
  spilling.spill_folder = ::testing::TempDir();
  Engine grows = engine(
      5, {.pass_rows = 12, .booking = KvBooking::as_it_grows, .prefix_cache = true}, spilling);
  const PagedKvCache& cache = prepared_->pipeline().cache();
  ASSERT_GT(cache.spill_capacity_pages(), 0);
  for (int i = 0; i < 6; ++i) grows.submit(request(10 + i, 48));
  bool both = false;
  Ended ended;
  while (!grows.idle()) {
    for (const Progress& progress : grows.step()) {
      ended.tokens[progress.sequence.value].push_back(progress.token);
    }
    both |= cache.pages_in_use() > 0 && cache.spilled_pages() > 0;
  }
  EXPECT_TRUE(both);
  EXPECT_GT(grows.counters().preemptions, 0);
  EXPECT_EQ(ended.tokens, expected.tokens);
  EXPECT_EQ(cache.spilled_pages(), 0);
}

// A large request does not hold up small ones, until kMostOvertaken of them have overtaken it.
// Small ones come all the time, so that it would never find enough free pages.
TEST_F(GrowthTest, WhoDoesNotFitIsPassedOverButNotForever) {
  Engine grows = engine(5, kGrows);
  grows.submit(request(2, 6));
  grows.step();
  const SequenceId large = grows.submit(request(60, 1));
  int64_t overtook = 0;
  for (int step = 0; step < 1000; ++step) {
    while (grows.waiting() < 4) grows.submit(request(2, 6));
    for (const Progress& progress : grows.step()) {
      if (progress.sequence == large) {
        EXPECT_GE(overtook, kMostOvertaken);
        EXPECT_LE(overtook, kMostOvertaken + 5)
            << "at most a cache of small ones was still running";
        return;
      }
      if (progress.finish != Finish::not_yet && progress.sequence > large) ++overtook;
    }
  }
  FAIL() << "it starved";
}

// A long prompt comes in slices beside sequences that generate: each pass has few rows, and every
// pass gives them a token.
TEST_F(GrowthTest, ALongPromptHoldsUpNobody) {
  Engine grows = engine(40, {.pass_rows = 20});
  const SequenceId first = grows.submit(request(4, 40));
  grows.step();
  const SequenceId late = grows.submit(request(60, 2));
  bool begun = false;
  for (int step = 0; step < 4; ++step) {
    std::set<int32_t> gained;
    for (const Progress& progress : grows.step()) gained.insert(progress.sequence.value);
    EXPECT_TRUE(gained.contains(first.value));
    begun |= gained.contains(late.value);
    int64_t rows = 0;
    for (const PassRows& of : grows.last_pass().rows) rows += of.tokens;
    EXPECT_LE(rows, 20);
  }
  EXPECT_TRUE(begun) << "60 tokens take four slices of 19";
}

// Keys of a text beyond the trained context differ from those of its beginning alone.
TEST_F(GrowthTest, WhereKeysDependOnTheLengthNothingIsShared) {
  model_ = TestModel(test_model("variants/phimoe_longrope"));
  const EngineOptions options{.booking = KvBooking::as_it_grows, .prefix_cache = true};
  Engine alone = engine(40, {});
  alone.submit(request(40, 12));
  const std::vector<TokenId> expected = run_to_the_end(alone).tokens[0];
  Engine sharing = engine(40, options);
  sharing.submit(request(26, 12));
  run_to_the_end(sharing);
  sharing.submit(request(40, 12));
  EXPECT_EQ(run_to_the_end(sharing).tokens[1], expected);
  EXPECT_EQ(sharing.counters().prefix.hits, 0);
}

TEST_F(GrowthTest, APrefixIsComputedOnce) {
  Engine sharing = engine(40, {.prefix_cache = true});
  for (int round = 0; round < 3; ++round) {
    sharing.submit(request(50, 3));
    run_to_the_end(sharing);
  }
  EXPECT_EQ(sharing.counters().prefix.hits, 2);
  EXPECT_EQ(sharing.counters().prefix.tokens, 2 * 48);
  EXPECT_EQ(prepared_->pipeline().report().tokens, 52 + 2 * 4);
}

}  // namespace
}  // namespace klotski
