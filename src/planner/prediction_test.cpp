#include "planner/prediction.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "planner/search.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

constexpr double kMillisecond = 1e-3;

// Work that takes as long for many rows as for one, or grows with them.
Curve constant(double seconds) { return Curve({1.0, 1e6}, {seconds, seconds}); }
Curve growing(double seconds_a_row) {
  return Curve({1.0, 1e6}, {seconds_a_row, seconds_a_row * 1e6});
}

// A machine that reads a byte in a nanosecond, and layers whose experts take a millisecond.
Profile plain_profile(const ModelDescription& model) {
  Profile profile;
  profile.machine.memory_bytes_per_second = 1e12;
  profile.machine.disk_bytes_per_second = 1e9;
  LayerProfile layer;
  layer.attention_products = constant(kMillisecond);
  layer.attend_decode = constant(1e-9);
  layer.attend_prefill = constant(1e-9);
  layer.route = constant(1e-9);
  layer.expert = constant(kMillisecond);
  layer.expert_arranged = constant(kMillisecond);
  layer.combine = constant(1e-9);
  profile.model.kinds = {layer};
  profile.model.kind_of_layer.assign(model.layers.size(), 0);
  profile.model.embed = constant(1e-9);
  profile.model.logits = constant(1e-9);
  return profile;
}

Policy resident_policy(const ModelDescription& model) {
  Policy policy;
  policy.micro_batch = 4;
  policy.micro_batches = 2;
  policy.micro_batch_rows = 64;
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    policy.slots[kind] = static_cast<int64_t>(units_of(model, static_cast<UnitKind>(kind)).size());
  }
  return policy;
}

struct Bench {
  ModelDescription model = shape_of(4, 8, 2);
  Profile profile = plain_profile(model);
  ExpertShares shares{model};
  uint64_t unit_bytes = 1'000'000;  // a millisecond of reading

  Machinery machinery() const {
    return {.model = model,
            .profile = profile,
            .facts =
                [this](const WeightUnit&) {
                  return UnitFacts{unit_bytes, false};
                },
            .shares = shares};
  }
};

TEST(ExpertShares, ExpertsAreChosenAsOftenAsAtRandom) {
  const ModelDescription model = shape_of(1, 8, 2);
  const std::vector<double> wanted = {0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05};
  const ExpertShares shares(model, {wanted});
  for (const double rows : {1.0, 3.0, 20.0}) {
    std::vector<double> sums(8);
    std::vector<double> times(8);
    constexpr int64_t kPasses = 20000;
    for (int64_t pass = 0; pass < kPasses; ++pass) {
      const std::vector<double> found = shares.rows(LayerId(0), 0, pass, rows, 2);
      int64_t chosen = 0;
      for (size_t e = 0; e < 8; ++e) {
        sums[e] += found[e] / kPasses;
        times[e] += found[e] > 0 ? 1.0 / kPasses : 0.0;
        chosen += found[e] > 0;
      }
      ASSERT_GE(chosen, 2);
    }
    for (size_t e = 0; e < 8; ++e) {
      EXPECT_NEAR(sums[e], 2 * wanted[e] * rows, 0.03 * rows) << e;
      EXPECT_NEAR(times[e], 1 - std::pow(1 - 2 * wanted[e], rows), 0.02) << e;
    }
  }
}

TEST(ExpertShares, TheHottestAreThoseMostChosen) {
  const ModelDescription model = shape_of(1, 4, 1);
  const ExpertShares shares(model, {{1, 5, 2, 5}});
  EXPECT_EQ(shares.hottest(LayerId(0), 1), std::vector{ExpertId(1)});
  EXPECT_EQ(shares.hottest(LayerId(0), 3), (std::vector{ExpertId(1), ExpertId(2), ExpertId(3)}));
  EXPECT_EQ(shares.hottest(LayerId(0), 9).size(), 4u);
}

// Everything in memory: after the first pass nothing is read, and a layer takes a millisecond of
// attention for each of two micro-batches and one for each expert that was chosen.
TEST(Prediction, WhatIsResidentIsComputedOnly) {
  const Bench bench;
  const Machinery with = bench.machinery();
  const Policy policy = resident_policy(bench.model);
  const Prediction found = predict(
      with, policy, {.sequences = 8, .prompt_tokens = 16, .generated_tokens = 11, .at_once = 8});
  EXPECT_EQ(found.passes, 11);  // one of prompts, which gives a first token each
  EXPECT_EQ(found.prompt_tokens, 128);
  EXPECT_EQ(found.generated_tokens, 88);
  EXPECT_EQ(found.decoded_tokens, 80);
  // Of a micro-batch's four rows an expert is chosen with 1 - (3/4)^4, of both with 0.90.
  EXPECT_NEAR(found.decode_seconds, 10 * 4 * (2 + 0.90 * 8) * kMillisecond, 0.02);
  // Reading all 1 + 4 * (2 + 8) units once is overlapped with their use, but for the first ones.
  EXPECT_GT(found.prefill_seconds, 41 * kMillisecond);
  EXPECT_LT(found.prefill_seconds, 60 * kMillisecond);
  EXPECT_EQ(found.totals.lane(Lane::disk_read).bytes, 41u * bench.unit_bytes);
}

// Too few slots: every pass reads the experts again, which takes longer than computing them.
TEST(Prediction, AMachineThatWaitsForItsDiskTakesAsLongAsReading) {
  Bench bench;
  bench.unit_bytes = 10'000'000;  // ten times as long as computing it
  const Machinery with = bench.machinery();
  Policy policy = resident_policy(bench.model);
  policy.slots[index_of(UnitKind::expert)] = 8;  // of 32
  const PlannedWork work{.sequences = 8, .prompt_tokens = 16, .generated_tokens = 21, .at_once = 8};
  const Prediction found = predict(with, policy, work);
  const double pass = found.decode_seconds / 20;
  EXPECT_GT(pass, 0.95 * 24 * 10 * kMillisecond);  // all but the eight that stay
  EXPECT_LT(pass, 1.10 * 32 * 10 * kMillisecond);
  bench.profile.machine.disk[0].bytes_per_second *= 2;
  bench.profile.machine.disk_bytes_per_second_while_computing *= 2;
  const double faster = predict(with, policy, work).decode_seconds / 20;
  EXPECT_NEAR(faster, pass / 2, 0.1 * pass);
}

TEST(Prediction, SequencesThatDoNotFitWaitForOthers) {
  const Bench bench;
  const Machinery with = bench.machinery();
  const Policy policy = resident_policy(bench.model);
  const PlannedWork work{.sequences = 24, .prompt_tokens = 8, .generated_tokens = 5, .at_once = 8};
  const Prediction in_turns = predict(with, policy, work);
  EXPECT_EQ(in_turns.generated_tokens, 24 * 5);
  EXPECT_EQ(in_turns.passes, 3 * 5);
  PlannedWork half = work;
  half.at_once = 4;
  EXPECT_EQ(predict(with, policy, half).passes, 6 * 5);
}

TEST(Prediction, ManyGroupsAreLikeSome) {
  const Bench bench;
  const Machinery with = bench.machinery();
  const Policy policy = resident_policy(bench.model);
  PlannedWork work{.sequences = 64, .prompt_tokens = 8, .generated_tokens = 5, .at_once = 8};
  const Prediction some = predict(with, policy, work);
  work.sequences = int64_t{1} << 30;
  const Prediction many = predict(with, policy, work);
  EXPECT_DOUBLE_EQ(many.generated_tokens, 5.0 * static_cast<double>(work.sequences));
  EXPECT_NEAR(many.tokens_per_second(), some.tokens_per_second(), 1e-6);
  EXPECT_EQ(many.passes, some.passes << 24);
}

// Prompts longer than a pass has rows take several, and those that are done generate meanwhile.
TEST(Prediction, PromptsAreCutIntoPasses) {
  const Bench bench;
  const Machinery with = bench.machinery();
  const Policy policy = resident_policy(bench.model);
  const Prediction found = predict(
      with, policy, {.sequences = 8, .prompt_tokens = 100, .generated_tokens = 3, .at_once = 8});
  EXPECT_EQ(found.prompt_tokens, 800);
  EXPECT_EQ(found.generated_tokens, 24);
  EXPECT_GE(found.passes, 7 + 2);
  EXPECT_LE(found.passes, 8 + 3);
}

TEST(Search, SizesCoverTheWorkAndKeepWhatIsFixed) {
  for (const int64_t sequences : {1, 2, 7, 64, 1000}) {
    const std::vector<Choice> sizes = group_sizes({.sequences = sequences});
    ASSERT_FALSE(sizes.empty());
    EXPECT_EQ(sizes.front(), Choice());
    for (const Choice& size : sizes) EXPECT_LE(size.micro_batch, sequences);
    EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [&](const Choice& size) {
      return size.group() >= sequences;
    })) << sequences;
  }
  EXPECT_EQ(group_sizes({.sequences = 1}).size(), 1u);
  for (const Choice& size : group_sizes({.sequences = 64, .micro_batch = 4})) {
    EXPECT_EQ(size.micro_batch, 4);
  }
  for (const Choice& size : group_sizes({.sequences = 64, .micro_batches = 3})) {
    EXPECT_EQ(size.micro_batches, 3);
  }
  EXPECT_EQ(group_sizes({.sequences = 64, .micro_batch = 5, .micro_batches = 3}),
            (std::vector{Choice{.micro_batch = 5, .micro_batches = 3}}));
  for (const Choice& size : group_sizes({.sequences = 64, .strategy = Strategy::simple})) {
    EXPECT_EQ(size.micro_batches, 1);
  }
}

TEST(Search, VariantsDifferInWhatIsNotFixed) {
  const Choice choice{.micro_batch = 4, .micro_batches = 3};
  SearchSpace space{.sequences = 12, .most_experts = 8, .top_k = 2};
  std::set<Strategy> strategies;
  std::set<int64_t> hot;
  for (const Choice& other : variants(space, choice)) {
    EXPECT_NE(other, choice);
    EXPECT_EQ(other.micro_batch, 4);
    strategies.insert(other.strategy);
    hot.insert(other.hot_experts);
  }
  EXPECT_EQ(strategies.size(), kStrategies);
  EXPECT_EQ(hot, (std::set<int64_t>{0, 1, 4, 8})) << "two is what zero stands for";
  space.strategy = Strategy::klotski;
  for (const Choice& other : variants(space, choice)) {
    EXPECT_EQ(other.strategy, Strategy::klotski);
  }
  space.hot_experts = 3;
  EXPECT_TRUE(variants(space, choice).empty());
}

// A slow disk wants all sequences to share a load of the weights; with everything in memory and
// arithmetic in proportion to the rows no group is faster than a small one.
TEST(Search, LargeGroupsWhereReadingBindsAndSmallOnesWhereNothingIsGained) {
  Bench bench;
  LayerProfile& layer = bench.profile.model.kinds[0];
  layer.attention_products = growing(1e-5);
  layer.expert = growing(1e-5);
  layer.expert_arranged = growing(1e-5);
  const Machinery with = bench.machinery();
  int64_t expert_slots = 8;
  const auto fit = [&](const Choice& size) -> std::optional<FittedGroup> {
    if (size.micro_batch > 16) return {};
    FittedGroup group{.policy = resident_policy(bench.model), .at_once = 64};
    group.policy.micro_batch = size.micro_batch;
    group.policy.micro_batches = size.micro_batches;
    group.policy.strategy = size.strategy;
    group.policy.hot_experts = size.hot_experts;
    group.policy.micro_batch_rows = 64;
    group.policy.slots[index_of(UnitKind::expert)] = expert_slots;
    return group;
  };
  const PlannedWork work{.sequences = 64, .prompt_tokens = 8, .generated_tokens = 9, .at_once = 64};
  const SearchSpace space{.sequences = 64, .most_experts = 8, .top_k = 2};
  bench.unit_bytes = 100'000'000;
  const std::vector<Candidate> reading = search(with, work, space, fit);
  EXPECT_GE(reading.front().choice.group(), 64);
  for (const Candidate& other : reading) EXPECT_LE(other.choice.micro_batch, 16);
  bench.unit_bytes = 1;
  expert_slots = 32;
  const std::vector<Candidate> resident = search(with, work, space, fit);
  EXPECT_LE(resident.front().choice.group(), 16);
}

TEST(Search, NothingFits) {
  const Bench bench;
  EXPECT_TRUE(search(bench.machinery(), {}, {.sequences = 8}, [](const Choice&) {
                return std::optional<FittedGroup>();
              }).empty());
}

}  // namespace
}  // namespace klotski
