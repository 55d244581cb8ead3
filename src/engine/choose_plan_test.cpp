#include "planner/choose_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/models.h"
#include "experts/predictor.h"

namespace klotski {
namespace {

Curve line(double seconds, double seconds_a_row) {
  return Curve({1.0, 1000.0}, {seconds + seconds_a_row, seconds + 1000.0 * seconds_a_row});
}

// A machine that reads `disk` bytes a second and computes a row of anything in a microsecond.
Profile profile_of(const ModelDescription& model, double disk) {
  Profile profile;
  profile.machine.cpu().memory_bytes_per_second = 1e12;
  profile.machine.disk().bytes_per_second = disk;
  LayerProfile layer;
  for (Curve* curve : {&layer.attention_products, &layer.attend_decode, &layer.attend_prefill,
                       &layer.route, &layer.expert, &layer.expert_arranged, &layer.combine}) {
    *curve = line(1e-6, 1e-6);
  }
  profile.model.kinds = {layer};
  profile.model.kind_of_layer.assign(model.layers.size(), 0);
  profile.model.embed = profile.model.logits = line(1e-6, 1e-6);
  return profile;
}

class ChoosePlan : public ::testing::Test {
 protected:
  ChosenPlan choose(const RunLimits& limits, const Workload& work, double disk = 1e6) const {
    const Profile profile = profile_of(test_.description, disk);
    return choose_plan({run_inputs(test_.description, layouts_, target_, {}), profile, shares_},
                       limits, work);
  }

  TestModel test_{test_model("mixtral")};
  UnitLayouts layouts_{test_.description, test_.checkpoint};
  ExpertShares shares_{test_.description};
  Target target_{.ops = cpu_processor()};
};

constexpr Workload kWork{
    .sequences = 48, .tokens_per_sequence = 20, .prompt_tokens = 12, .generated_tokens = 8};

TEST_F(ChoosePlan, ThePlanIsThatOfTheFastestSize) {
  RunLimits limits;
  limits.expert_slots = 2;
  const ChosenPlan chosen = choose(limits, kWork);
  ASSERT_GE(chosen.candidates.size(), 10u);
  const Candidate& best = chosen.candidates.front();
  EXPECT_EQ(chosen.run.policy.group.micro_batch, best.choice.micro_batch);
  EXPECT_EQ(chosen.run.policy.group.micro_batches, best.choice.micro_batches);
  for (const Candidate& other : chosen.candidates) {
    EXPECT_GE(best.prediction.tokens_per_second(), 0.99 * other.prediction.tokens_per_second());
  }
  // A slow disk, and experts that do not stay: as many sequences as there are share each load.
  EXPECT_GE(best.choice.group(), kWork.sequences);
}

TEST_F(ChoosePlan, WhatTheUserFixedStays) {
  RunLimits limits;
  limits.micro_batch = 3;
  EXPECT_EQ(choose(limits, kWork).run.policy.group.micro_batch, 3);
  limits.micro_batches = 5;
  const ChosenPlan chosen = choose(limits, kWork);
  for (const Candidate& candidate : chosen.candidates) EXPECT_EQ(candidate.choice.micro_batch, 3);
  EXPECT_EQ(chosen.run.policy.group.micro_batches, 5);
  limits.strategy = Strategy::multi_batch;
  limits.hot_experts = 1;
  const ChosenPlan nothing_left = choose(limits, kWork);
  EXPECT_EQ(nothing_left.candidates.size(), 1u);
  EXPECT_EQ(nothing_left.run.policy.strategy, Strategy::multi_batch);
}

TEST_F(ChoosePlan, OneSequenceHasOneSize) {
  Workload work = kWork;
  work.sequences = 1;
  const ChosenPlan chosen = choose({}, work);
  EXPECT_EQ(chosen.run.policy.group.sequences(), 1);
}

TEST_F(ChoosePlan, WhatFitsNowhereIsRefused) {
  RunLimits limits;
  limits.ram_bytes = 1 << 20;
  try {
    choose(limits, kWork);
    FAIL() << "a megabyte was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
  }
}

TEST_F(ChoosePlan, SharesFollowWhatATableHasSeen) {
  const ModelDescription& model = test_.description;
  CorrelationTable table(routing_shape(model));
  const ExpertShares even = shares_in(table, model);
  EXPECT_EQ(even.of(LayerId(0)).front(), even.of(LayerId(0)).back());
  GroupChoices group(routing_shape(model), 3);
  const auto top_k = static_cast<size_t>(model.layer(LayerId(0)).feed_forward.router.top_k);
  std::vector<ExpertId> choices;
  for (size_t token = 0; token < 3; ++token) {
    for (size_t i = 0; i < top_k; ++i) choices.emplace_back(static_cast<int64_t>(i));
  }
  group.add_layer(choices);
  table.observe_layer(0, group);
  const ExpertShares seen = shares_in(table, model);
  EXPECT_GT(seen.of(LayerId(0)).front(), 2.0 * seen.of(LayerId(0)).back());
  EXPECT_GT(seen.of(LayerId(0)).back(), 0.0) << "not seen is not impossible";
  // Each of the chosen experts was seen three times, none once: all others together count as one
  // that was seen once.
  const double all = static_cast<double>(3 * top_k) + 1.0;
  const auto others = static_cast<double>(seen.of(LayerId(0)).size() - top_k);
  EXPECT_NEAR(seen.of(LayerId(0)).front(), 3.0 / all, 1e-12);
  EXPECT_NEAR(seen.of(LayerId(0)).back(), 1.0 / others / all, 1e-12);
}

// Keys and values of few sequences fit: the prediction knows that the other sequences wait.
TEST_F(ChoosePlan, SequencesThatWaitAreCounted) {
  RunLimits limits;
  limits.micro_batch = 8;
  limits.micro_batches = 6;
  limits.strategy = Strategy::klotski;
  limits.hot_experts = 2;
  const int64_t passes = choose(limits, kWork).candidates.front().prediction.passes;
  limits.kv_bytes = PagedKvCache::page_bytes(test_.description, kv_type(limits.precision)) *
                    static_cast<uint64_t>(PagedKvCache::pages_for(20)) * 12;
  const Candidate fewer = choose(limits, kWork).candidates.front();
  EXPECT_EQ(fewer.group.at_once, 12);
  EXPECT_GE(fewer.prediction.passes, 3 * passes);
}

}  // namespace
}  // namespace klotski
