#include "schedule/pass_forming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace klotski {
namespace {

Policy small_policy(int64_t micro_batch, int64_t micro_batches, int64_t rows) {
  Policy policy;
  policy.group = {
      .micro_batch = micro_batch, .micro_batch_rows = rows, .micro_batches = micro_batches};
  return policy;
}

TEST(PassForming, SequencesAreAdmittedInOrderAsFarAsThereIsRoom) {
  const Policy policy = small_policy(2, 2, 100);
  const PassForming forming(policy);
  std::vector<PassSequence> sequences = {
      {.pending = 5}, {.pending = 9}, {.pending = 4}, {.pending = 1}, {.pending = 1}};
  forming.admit(sequences, [](size_t i) { return i < 2; });
  EXPECT_EQ(sequences[0].micro_batch, 1u);
  EXPECT_EQ(sequences[1].micro_batch, 0u) << "the longest first";
  EXPECT_FALSE(sequences[2].micro_batch) << "no memory";
  size_t asked = 0;
  forming.admit(sequences, [&](size_t) { return ++asked > 0; });
  EXPECT_EQ(asked, 2u);
  EXPECT_EQ(sequences[2].micro_batch, 1u) << "which has fewest tokens";
  EXPECT_EQ(sequences[3].micro_batch, 0u);
  EXPECT_FALSE(sequences[4].micro_batch) << "the group is full";
}

TEST(PassForming, SequencesAreAdmittedInAnOrderThatIsGiven) {
  const Policy policy = small_policy(2, 2, 100);
  const PassForming forming(policy);
  std::vector<PassSequence> sequences(6);
  sequences[1].micro_batch = 0;
  EXPECT_EQ(forming.room(sequences), 3);
  EXPECT_EQ(waiting_in(sequences), (std::vector<size_t>{0, 2, 3, 4, 5}));
  const std::vector<size_t> order = {4, 2, 5, 0};
  std::vector<size_t> asked;
  forming.admit(
      sequences,
      [&](size_t i) {
        asked.push_back(i);
        return true;
      },
      order);
  EXPECT_EQ(asked, (std::vector<size_t>{4, 2, 5})) << "then the group is full";
  EXPECT_EQ(waiting_in(sequences), (std::vector<size_t>{0, 3}));
  EXPECT_EQ(forming.room(sequences), 0);
}

TEST(PassForming, PromptsTakeTheRowsThatDecodingLeaves) {
  const Policy policy = small_policy(4, 2, 8);
  const std::vector<PassSequence> sequences = {
      {.cached = 0, .pending = 6, .micro_batch = 0}, {.cached = 3, .pending = 1, .micro_batch = 0},
      {.cached = 2, .pending = 5, .micro_batch = 0}, {.cached = 0, .pending = 7, .micro_batch = 0},
      {.cached = 9, .pending = 1, .micro_batch = 1}, {.cached = 0, .pending = 2}};
  const FormedPass pass = PassForming(policy).form(sequences);
  EXPECT_EQ(pass.micro_batches, 2u);
  EXPECT_EQ(pass.rows, (std::vector<PassRows>{
                           {0, 0, 6, true}, {1, 0, 1, true}, {2, 0, 1, false}, {4, 1, 1, true}}));
}

TEST(PassForming, DraftsTakeTheRowsThatPromptsLeave) {
  const Policy policy = small_policy(4, 1, 8);
  const std::vector<PassSequence> sequences = {
      {.cached = 3, .pending = 1, .micro_batch = 0, .drafts = 5},
      {.cached = 9, .pending = 1, .micro_batch = 0, .drafts = 2},
      {.cached = 0, .pending = 3, .micro_batch = 0},
      {.cached = 4, .pending = 1, .drafts = 4}};
  EXPECT_EQ(PassForming(policy).form(sequences).rows,
            (std::vector<PassRows>{{0, 0, 3, true, 2}, {1, 0, 2, true, 1}, {2, 0, 3, true}}));
}

TEST(PassForming, NoSlotsAreLentForDrafts) {
  Policy policy = small_policy(4, 1, 16);
  policy.layout.lent_slots = 2;
  policy.layout.rows_in_place = 5;
  const std::vector<PassSequence> sequences = {
      {.cached = 3, .pending = 1, .micro_batch = 0, .drafts = 4},
      {.cached = 9, .pending = 1, .micro_batch = 0, .drafts = 4}};
  EXPECT_EQ(PassForming(policy).form(sequences).rows,
            (std::vector<PassRows>{{0, 0, 3, true, 2}, {1, 0, 2, true, 1}}));
}

TEST(PassForming, DraftsCountAmongTheRowsOfABoundedPass) {
  const Policy policy = small_policy(4, 1, 100);
  std::vector<PassSequence> sequences = {
      {.cached = 3, .pending = 1, .micro_batch = 0, .drafts = 30},
      {.cached = 0, .pending = 12, .micro_batch = 0}};
  EXPECT_EQ(PassForming(policy).form(sequences, 20).rows,
            (std::vector<PassRows>{{0, 0, 8, true, 7}, {1, 0, 12, true}}));
}

TEST(PassForming, WhileAllDecodeMicroBatchesAreMerged) {
  Policy policy = small_policy(2, 5, 8);
  policy.group.decode_batch = 4;
  std::vector<PassSequence> sequences = {{.cached = 3, .micro_batch = 0},
                                         {.cached = 3, .micro_batch = 1},
                                         {.cached = 3, .micro_batch = 4}};
  const FormedPass merged = PassForming(policy).form(sequences);
  EXPECT_EQ(merged.micro_batches, 2u) << "the second of three has no rows";
  EXPECT_EQ(merged.rows,
            (std::vector<PassRows>{{0, 0, 1, true}, {1, 0, 1, true}, {2, 1, 1, true}}));
  sequences[1].pending = 2;
  EXPECT_EQ(PassForming(policy).form(sequences).micro_batches, 3u) << "a prompt is among them";
  sequences.push_back({.pending = 50});
  sequences[1].pending = 1;
  EXPECT_EQ(PassForming(policy).form(sequences), merged) << "whoever waits does not count";
}

// Prompts of a bounded pass share the rows that decoding leaves; what short ones do not need goes
// to longer ones, and the oldest is never behind.
TEST(PassForming, PromptsShareTheRowsOfABoundedPass) {
  const Policy policy = small_policy(8, 1, 1000);
  const PassForming forming(policy);
  std::vector<PassSequence> sequences = {{.pending = 500, .micro_batch = 0},
                                         {.cached = 3, .micro_batch = 0},
                                         {.pending = 400, .micro_batch = 0},
                                         {.pending = 10, .micro_batch = 0}};
  EXPECT_EQ(forming.form(sequences, 61).rows,
            (std::vector<PassRows>{
                {0, 0, 20, false}, {1, 0, 1, true}, {2, 0, 30, false}, {3, 0, 10, true}}));
  EXPECT_EQ(forming.form(sequences, 2).rows,
            (std::vector<PassRows>{
                {0, 0, 6, false}, {1, 0, 1, true}, {2, 0, 5, false}, {3, 0, 5, false}}))
      << "a page of rows at least";
  sequences[1].micro_batch.reset();
  EXPECT_EQ(forming.form(sequences, 61), forming.form(sequences)) << "nobody is held up";
}

TEST(PassForming, SequencesWithoutMemoryArePassedOver) {
  const Policy policy = small_policy(2, 2, 100);
  std::vector<PassSequence> sequences(4);
  PassForming(policy).admit(sequences, [](size_t i) { return i != 1; });
  EXPECT_EQ(waiting_in(sequences), std::vector<size_t>{1});
}

TEST(PassForming, NothingGivesNothing) {
  const Policy policy = small_policy(2, 2, 8);
  PassForming(policy).admit({}, [](size_t) { return true; });
  EXPECT_EQ(PassForming(policy).form({}), FormedPass());
}

// Random sequences: no micro-batch has too many rows or is empty, each sequence is in one
// micro-batch, all sequences that decode are computed, and a prompt waits only where its
// micro-batch is full.
TEST(PassForming, RowsFitAndNobodyWaitsForNothing) {
  std::mt19937 random(3);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(bound));
  };
  for (int round = 0; round < 2000; ++round) {
    const int64_t micro_batch = 1 + below(5);
    Policy policy = small_policy(micro_batch, 1 + below(5), micro_batch + below(30));
    policy.group.decode_batch = below(12);
    std::vector<PassSequence> sequences(static_cast<size_t>(below(20)));
    for (PassSequence& sequence : sequences) {
      sequence.pending = below(3) == 0 ? 1 + below(40) : 1;
    }
    const PassForming forming(policy);
    forming.admit(sequences, [&](size_t) { return below(10) > 0; });
    const int64_t most_rows = below(3) == 0 ? 1 + below(60) : 0;
    const FormedPass pass = forming.form(sequences, most_rows);
    std::vector<int64_t> rows(pass.micro_batches);
    std::vector<int64_t> tokens(sequences.size());
    for (const PassRows& one : pass.rows) {
      ASSERT_GT(one.tokens, 0);
      ASSERT_EQ(one.complete, one.tokens == sequences[one.sequence].pending);
      rows[one.micro_batch] += one.tokens;
      ASSERT_EQ(std::exchange(tokens[one.sequence], one.tokens), 0) << "in one micro-batch only";
    }
    const int64_t decoding = std::count_if(
        sequences.begin(), sequences.end(),
        [](const PassSequence& sequence) { return sequence.micro_batch && sequence.decodes(); });
    const bool bounded = most_rows > 0 && decoding > 0;
    const int64_t of_prompts = std::accumulate(rows.begin(), rows.end(), -decoding);
    const int64_t most_of_prompts = std::max(most_rows - decoding, PassForming::kLeastPromptRows);
    if (bounded) {
      ASSERT_LE(of_prompts, most_of_prompts);
    }
    bool some_micro_batch_is_full = bounded && of_prompts == most_of_prompts;
    for (const int64_t count : rows) {
      ASSERT_GT(count, 0);
      ASSERT_LE(count, policy.group.micro_batch_rows);
      some_micro_batch_is_full |= count == policy.group.micro_batch_rows;
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (!sequences[i].micro_batch) {
        ASSERT_EQ(tokens[i], 0);
      } else if (sequences[i].decodes()) {
        ASSERT_EQ(tokens[i], 1);
      } else if (tokens[i] < sequences[i].pending) {
        ASSERT_TRUE(some_micro_batch_is_full);
      }
    }
  }
}

// An encoder's input is computed as a whole, and nothing beside it.
TEST(PassForming, EncodersInputsComeAloneAndInOnePiece) {
  const Policy policy = small_policy(3, 2, 10);
  const PassForming forming(policy);
  std::vector<PassSequence> sequences = {
      {.cached = 8, .pending = 1, .micro_batch = 0},
      {.pending = 7, .micro_batch = 0, .encoded = 6},
      {.pending = 6, .micro_batch = 0, .encoded = 5},
      {.pending = 5, .micro_batch = 1, .encoded = 4},
      {.pending = 3, .encoded = 2},
  };
  const FormedPass first = forming.form(sequences);
  EXPECT_EQ(first.micro_batches, 2u);
  EXPECT_EQ(first.rows, (std::vector<PassRows>{{1, 0, 6, false}, {3, 1, 4, false}}))
      << "the third has no rows left, the first decodes, the last waits";
  sequences[1] = {.cached = 6, .pending = 1, .micro_batch = 0};
  sequences[3] = {.cached = 4, .pending = 1, .micro_batch = 1};
  EXPECT_EQ(forming.form(sequences).rows, (std::vector<PassRows>{{2, 0, 5, false}}));
  sequences[2] = {.cached = 5, .pending = 1, .micro_batch = 0};
  EXPECT_EQ(forming.form(sequences).rows.size(), 4u);
}

}  // namespace
}  // namespace klotski
