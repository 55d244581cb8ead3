#include "planner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/layer_sample.h"
#include "planner/testing.h"

namespace klotski {
namespace {

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
  for (const Choice& size :
       group_sizes({.sequences = 64, .micro_batches = 4, .strategy = Strategy::simple})) {
    EXPECT_EQ(size.micro_batches, 1) << "it knows no more";
  }
}

SearchSpace space_of_a_device(int64_t sequences) {
  SearchSpace space{.sequences = sequences, .most_experts = 8, .top_k = 2};
  space.strategies.insert(space.strategies.end(), {Strategy::cgopipe, Strategy::hybrid});
  space.cpu_attention = {false, true};
  return space;
}

TEST(Search, EveryWayToUseTheProcessorsHasAllSizes) {
  SearchSpace space = space_of_a_device(64);
  using Way = std::pair<Strategy, bool>;
  const auto ways = [&] {
    std::map<Way, size_t> found;
    for (const Choice& size : group_sizes(space)) ++found[{size.strategy, size.cpu_attention}];
    return found;
  };
  const size_t sizes = group_sizes({.sequences = 64}).size();
  EXPECT_EQ(ways(), (std::map<Way, size_t>{{{Strategy::klotski, false}, sizes},
                                           {{Strategy::hybrid, false}, sizes},
                                           {{Strategy::cgopipe, true}, sizes},
                                           {{Strategy::hybrid, true}, sizes}}));
  space.cpu_attention = {true};
  EXPECT_EQ(ways(), (std::map<Way, size_t>{{{Strategy::cgopipe, true}, sizes},
                                           {{Strategy::hybrid, true}, sizes}}));
  space.cpu_attention = {false, true};
  space.strategy = Strategy::hybrid;
  EXPECT_EQ(ways(), (std::map<Way, size_t>{{{Strategy::hybrid, false}, sizes},
                                           {{Strategy::hybrid, true}, sizes}}));
}

// A strategy that the user fixed is not doubted, even where it needs a device and none is there.
TEST(Search, AFixedStrategyAlwaysHasSizes) {
  for (size_t i = 0; i < kStrategies; ++i) {
    const SearchSpace space{.sequences = 8, .strategy = static_cast<Strategy>(i)};
    ASSERT_FALSE(group_sizes(space).empty());
    EXPECT_EQ(group_sizes(space).front().strategy, *space.strategy);
  }
}

// A choice with everything in memory.
FittedGroup resident_group(const Bench& bench, const Choice& choice, int64_t at_once) {
  FittedGroup group{.policy = resident_policy(bench.model), .memory = {}, .at_once = at_once};
  group.policy.group.micro_batch = choice.micro_batch;
  group.policy.group.micro_batches = choice.micro_batches;
  group.policy.strategy = choice.strategy;
  group.policy.cache.hot_experts = choice.hot_experts;
  return group;
}

// A way that fits in a single size is found, whichever way and size it is.
TEST(Search, AWayThatFitsInOneSizeIsFound) {
  const Bench bench;
  const PlannedWork work{.sequences = 64, .prompt_tokens = 8, .generated_tokens = 9, .at_once = 64};
  for (const Choice& only : group_sizes(space_of_a_device(64))) {
    if (only.micro_batches != 4 && only.micro_batch != 2) continue;
    const auto fit = [&](const Choice& size) -> std::optional<FittedGroup> {
      if (size != only) return {};
      return resident_group(bench, size, 64);
    };
    const std::vector<Candidate> found =
        search(bench.prediction_inputs(), work, space_of_a_device(64), fit);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found.front().choice, only);
  }
}

// Where several processors gain nothing, one of them computes: they would have to wait for each
// other.
TEST(Search, OneProcessorWhereSeveralAreNoFaster) {
  const Bench bench;
  const PlannedWork work{.sequences = 1, .prompt_tokens = 8, .generated_tokens = 9, .at_once = 1};
  const auto fit = [&](const Choice& size) { return resident_group(bench, size, 1); };
  const Choice found =
      search(bench.prediction_inputs(), work, space_of_a_device(1), fit).front().choice;
  EXPECT_NE(found.strategy, Strategy::hybrid);
  EXPECT_FALSE(found.cpu_attention);
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
  EXPECT_EQ(strategies.size(), space.strategies.size());
  EXPECT_EQ(hot, (std::set<int64_t>{0, 1, 4, 8})) << "half, twice, all; two is what 0 stands for";
  space.strategy = Strategy::klotski;
  for (const Choice& other : variants(space, choice)) {
    EXPECT_EQ(other.strategy, Strategy::klotski);
  }
  space.strategy = {};
  space.micro_batches = 3;
  for (const Choice& other : variants(space, choice)) EXPECT_EQ(other.micro_batches, 3);
  space.strategy = Strategy::klotski;
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
  const PredictionInputs with = bench.prediction_inputs();
  int64_t expert_slots = 8;
  const auto fit = [&](const Choice& size) -> std::optional<FittedGroup> {
    if (size.micro_batch > 16) return {};
    FittedGroup group = resident_group(bench, size, 64);
    group.policy.group.micro_batch_rows = 64;
    group.policy.layout.compute().slots[index_of(UnitKind::expert)] = expert_slots;
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

// Layers that take twice as long, every other one: an sample has as many of each.
TEST(LayerSample, StandsForTheWhole) {
  Bench bench;
  bench.model = shape_of(24, 8, 2);
  bench.profile = plain_profile(bench.model);
  bench.shares = ExpertShares(bench.model);
  LayerProfile slow = bench.profile.model.kinds[0];
  slow.expert = slow.expert_arranged = constant(2 * kMillisecond);
  bench.profile.model.kinds.push_back(slow);
  for (size_t j = 1; j < 24; j += 2) bench.profile.model.kind_of_layer[j] = 1;
  const PredictionInputs whole = bench.prediction_inputs();
  const PlannedWork work{.sequences = 8, .prompt_tokens = 8, .generated_tokens = 6, .at_once = 8};
  for (const int64_t slots : {24, 96, 192}) {
    Policy policy = resident_policy(bench.model);
    policy.layout.compute().slots[index_of(UnitKind::expert)] = slots;
    const LayerSample sample(whole, 6);
    const PredictionInputs part = sample.prediction_inputs();
    EXPECT_EQ(part.model.layer_count(), 6);
    EXPECT_EQ(sample.policy(policy).layout.compute().slots[index_of(UnitKind::expert)], slots / 4);
    const double ratio = predict(whole, policy, work).seconds() /
                         predict(part, sample.policy(policy), work).seconds();
    EXPECT_NEAR(ratio, 4.0, 0.4) << slots;
  }
}

TEST(LayerSample, OfFewLayersIsAllOfThem) {
  const Bench bench;
  const LayerSample sample(bench.prediction_inputs(), 9);
  EXPECT_EQ(sample.prediction_inputs().model.layer_count(), bench.model.layer_count());
  const Policy policy = resident_policy(bench.model);
  EXPECT_EQ(sample.policy(policy).layout.compute().slots, policy.layout.compute().slots);
}

TEST(Search, NothingFits) {
  const Bench bench;
  EXPECT_TRUE(search(bench.prediction_inputs(), {}, {.sequences = 8}, [](const Choice&) {
                return std::optional<FittedGroup>();
              }).empty());
}

}  // namespace
}  // namespace klotski
