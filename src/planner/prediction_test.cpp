#include "planner/prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/bytes.h"
#include "planner/block_model.h"
#include "planner/testing.h"

namespace klotski {
namespace {

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

// Everything in memory: after the first pass nothing is read, and a layer takes a millisecond of
// attention for each of two micro-batches and one for each expert that was chosen.
TEST(Prediction, WhatIsResidentIsComputedOnly) {
  const Bench bench;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  const Prediction found = predict(
      with, policy, {.sequences = 8, .prompt_tokens = 16, .generated_tokens = 11, .at_once = 8});
  EXPECT_EQ(found.passes, 11);  // one of prompts, which gives a first token each
  EXPECT_EQ(found.prompt_tokens, 128);
  EXPECT_EQ(found.generated_tokens, 88);
  EXPECT_EQ(found.decoded_tokens, 80);
  // An expert is chosen by a micro-batch's four rows with 1 - (3/4)^4, by both micro-batches with
  // 0.90.
  EXPECT_NEAR(found.decode_seconds, 10 * 4 * (2 + 0.90 * 8) * kMillisecond, 0.02);
  // Reading all 1 + 4 * (2 + 8) units once is overlapped with their use, but for the first ones.
  EXPECT_GT(found.prefill_seconds, 41 * kMillisecond);
  EXPECT_LT(found.prefill_seconds, 60 * kMillisecond);
  EXPECT_EQ(found.totals.lane(Lane::kDiskRead).bytes, 41u * bench.unit_bytes);
}

// Too few slots: every pass reads the experts again, which takes longer than computing them.
TEST(Prediction, AMachineThatWaitsForItsDiskTakesAsLongAsReading) {
  Bench bench;
  bench.unit_bytes = 10'000'000;  // ten times as long as computing it
  const PredictionInputs with = bench.prediction_inputs();
  Policy policy = resident_policy(bench.model);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 8;  // 8 of 32
  const PlannedWork work{.sequences = 8, .prompt_tokens = 16, .generated_tokens = 21, .at_once = 8};
  const Prediction found = predict(with, policy, work);
  const double pass = found.decode_seconds / 20;
  EXPECT_GT(pass, 0.95 * 24 * 10 * kMillisecond);  // all but the eight that stay
  EXPECT_LT(pass, 1.10 * 32 * 10 * kMillisecond);
  bench.profile.machine.disk().bytes_per_second *= 2;
  const double faster = predict(with, policy, work).decode_seconds / 20;
  EXPECT_NEAR(faster, pass / 2, 0.1 * pass);
}

TEST(Prediction, WeightsInPlaceAreNotReadByTheFirstPass) {
  Bench bench;
  bench.unit_bytes = 10'000'000;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  PlannedWork work{.sequences = 8, .prompt_tokens = 16, .generated_tokens = 5, .at_once = 8};
  const Prediction cold = predict(with, policy, work);
  work.weights_in_place = true;
  const Prediction warm = predict(with, policy, work);
  EXPECT_EQ(warm.totals.lane(Lane::kDiskRead).bytes, 0u);
  EXPECT_LT(warm.prefill_seconds, 0.5 * cold.prefill_seconds);
  EXPECT_NEAR(warm.decode_seconds, cold.decode_seconds, 0.05 * cold.decode_seconds);
  EXPECT_EQ(warm.passes, cold.passes);
}

TEST(Prediction, SequencesThatDoNotFitWaitForOthers) {
  const Bench bench;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  const PlannedWork work{.sequences = 24, .prompt_tokens = 8, .generated_tokens = 5, .at_once = 8};
  const Prediction in_turns = predict(with, policy, work);
  EXPECT_EQ(in_turns.generated_tokens, 24 * 5);
  EXPECT_EQ(in_turns.passes, 3 * 5);
  PlannedWork half = work;
  half.at_once = 4;
  EXPECT_EQ(predict(with, policy, half).passes, 6 * 5);
}

// A prompt leaves experts in memory that the next tokens do not use: the passes that bring theirs
// are few of all passes of decoding, and must not stand for the others.
TEST(Prediction, PassesUntilMemoryHasSettledDoNotStandForAll) {
  Bench bench;
  bench.model = shape_of(4, 64, 2);
  bench.profile = plain_profile(bench.model);
  std::vector<double> shares(64, 0.2 / 56);
  std::fill_n(shares.begin(), 8, 0.1);
  bench.shares = ExpertShares(bench.model, std::vector(4, shares));
  bench.unit_bytes = 10'000'000;
  const PredictionInputs with = bench.prediction_inputs();
  Policy policy = resident_policy(bench.model);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 4 * 16;
  const PlannedWork work{.prompt_tokens = 512, .generated_tokens = 102, .at_once = 1};
  const auto decode_seconds = [&](const PredictionDetail& detail) {
    return predict(with, policy, work, detail).decode_seconds;
  };
  const double of_all = decode_seconds({.averaged_layers = 4 * 200});
  EXPECT_NEAR(decode_seconds({.averaged_layers = 4}), of_all, 0.12 * of_all);
  EXPECT_GT(decode_seconds({.averaged_layers = 4, .settling = 0.0}), 1.15 * of_all);
}

// A decoder sees its own tokens and, besides, all of its encoder's input.
TEST(PlannedPasses, ADecodersPositionsAreNotItsEncoders) {
  const ModelDescription model = shape_of(1, 8, 2);
  const Policy policy = resident_policy(model);
  const PlannedWork work{
      .sequences = 2, .prompt_tokens = 10, .generated_tokens = 4, .at_once = 2, .encodes = true};
  PlannedPasses passes(policy, work);
  EXPECT_TRUE(passes.next()->shape.encodes);
  const PassShape first = passes.next()->shape;  // the decoder's first token
  EXPECT_FALSE(first.encodes);
  EXPECT_EQ(first.encoded, 9.0);
  const PassShape second = passes.next()->shape;
  EXPECT_EQ(second.positions, 2.0);
  EXPECT_EQ(second.encoded, 9.0);
}

TEST(Prediction, ManyGroupsAreLikeSome) {
  const Bench bench;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  PlannedWork work{.sequences = 64, .prompt_tokens = 8, .generated_tokens = 5, .at_once = 8};
  const Prediction some = predict(with, policy, work);
  work.sequences = int64_t{1} << 30;
  const Prediction many = predict(with, policy, work);
  EXPECT_DOUBLE_EQ(many.generated_tokens, 5.0 * static_cast<double>(work.sequences));
  EXPECT_EQ(many.passes, some.passes << 24);
  // Weights that stay in memory are read once, however much there is to do.
  EXPECT_EQ(many.totals.lane(Lane::kDiskRead).bytes, some.totals.lane(Lane::kDiskRead).bytes);
  EXPECT_GT(many.tokens_per_second(), some.tokens_per_second());
  EXPECT_LT(many.tokens_per_second(), 1.1 * some.tokens_per_second());
}

// Prompts borrow slots that the passes after them fill again: once a group, not once a pass.
TEST(Prediction, WhatPromptsBorrowComesBackOnceAGroup) {
  Bench bench;
  const Curve link = growing(1e-9);
  bench.profile.machine.links = {{.weights = link, .rows_up = link, .rows_down = link}};
  Policy policy = resident_policy(bench.model);
  policy.layout.set_host_slots(policy.layout.compute().slots);
  policy.layout.rows_in_place = policy.group.sequences();
  const auto loaded = [&](int64_t groups, int64_t generated) {
    const PlannedWork work{.sequences = groups * policy.group.sequences(),
                           .prompt_tokens = 8,
                           .generated_tokens = generated,
                           .at_once = policy.group.sequences()};
    PredictionInputs with = bench.prediction_inputs();
    with.facts = [](const WeightUnit&) { return UnitFacts{1000, false, 1000}; };
    const Prediction found = predict(with, policy, work);
    return found.totals.lane(Lane::kToDevice).bytes;
  };
  EXPECT_EQ(loaded(3, 9), 0u) << "all is there before the first pass";
  policy.layout.lent_slots = 5;
  const double one = static_cast<double>(loaded(1, 9));
  EXPECT_GT(one, 0.0);
  EXPECT_NEAR(static_cast<double>(loaded(1, 33)), one, 0.1 * one);
  const double more = static_cast<double>(loaded(3, 9)) - one;  // the first finds all there
  EXPECT_GT(more, 1.5 * one);
  EXPECT_LE(more, 2.0 * one);
}

// Prompts longer than a pass has rows take several passes, and sequences whose prompts are done
// generate meanwhile.
TEST(Prediction, PromptsAreCutIntoPasses) {
  const Bench bench;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  const Prediction found = predict(
      with, policy, {.sequences = 8, .prompt_tokens = 100, .generated_tokens = 3, .at_once = 8});
  EXPECT_EQ(found.prompt_tokens, 800);
  EXPECT_EQ(found.generated_tokens, 24);
  EXPECT_GE(found.passes, 7 + 2);
  EXPECT_LE(found.passes, 8 + 3);
}

// Passes of prompts and a few decoding rows each are told apart by their rows as a whole: that
// changes the time by little, where every kind of row takes its own.
TEST(Prediction, FewRowsBesideManyNeedNotBeToldApart) {
  Bench bench;
  LayerProfile& layer = bench.profile.model.kinds[0];
  layer.attention_products = growing(1e-5);
  layer.attend_decode = growing(1e-6);
  layer.attend_prefill = growing(1e-5);
  layer.expert = Curve({1.0, 1e6}, {kMillisecond, 10.0});
  layer.expert_arranged = layer.expert;
  bench.profile.model.logits = growing(1e-4);
  const PredictionInputs with = bench.prediction_inputs();
  Policy policy = resident_policy(bench.model);
  policy.group.micro_batch = 32;
  policy.group.micro_batch_rows = 512;
  const PlannedWork work{
      .sequences = 64, .prompt_tokens = 256, .generated_tokens = 16, .at_once = 64};
  const Prediction found = predict(with, policy, work);
  const Prediction exact = predict(with, policy, work, {.row_steps = 1e6});
  EXPECT_EQ(found.passes, exact.passes);
  EXPECT_NEAR(found.prefill_seconds, exact.prefill_seconds, 0.02 * exact.prefill_seconds);
  EXPECT_NEAR(found.decode_seconds, exact.decode_seconds, 0.02 * exact.decode_seconds);
}

// Layers whose keys and values take some bytes.
void widen_keys_and_values(ModelDescription& model) {
  for (Layer& layer : model.layers) {
    layer.attention.grouped_heads().kv_heads = 2;
    layer.attention.grouped_heads().head_dim = 64;
  }
}

// Half of the keys and values pass through a file in every layer.
TEST(Prediction, SpilledKeysAndValuesTakeTime) {
  Bench bench;
  widen_keys_and_values(bench.model);
  Policy policy = resident_policy(bench.model);
  const PlannedWork work{
      .sequences = 8, .prompt_tokens = 4000, .generated_tokens = 11, .at_once = 8};
  const Prediction inside = predict(bench.prediction_inputs(), policy, work);
  policy.layout.kv_stages = 2;
  policy.layout.compute().kv_bytes = policy.layout.compute().kv_spill_bytes = kMiB;
  const Prediction outside = predict(bench.prediction_inputs(), policy, work);
  EXPECT_EQ(inside.totals.lane(Lane::kKvIn).spans, 0);
  EXPECT_GT(outside.totals.lane(Lane::kKvIn).busy, outside.totals.lane(Lane::kKvOut).busy);
  EXPECT_GT(outside.decode_seconds, inside.decode_seconds);
}

// A device whose weights and keys and values come by one bus, a byte in a nanosecond.
struct BesideWeights {
  Bench bench;
  Policy policy;

  BesideWeights() {
    widen_keys_and_values(bench.model);
    bench.profile.machine.links = {
        {.weights = growing(1e-9), .rows_up = growing(1e-9), .rows_down = constant(1e-4)}};
    LayerProfile& layer = bench.profile.model.kinds[0];
    layer.expert = layer.attention_products = constant(1e-6);
    policy = resident_policy(bench.model);
    policy.layout.set_host_slots(policy.layout.compute().slots);
    policy.layout.compute().slots[index_of(UnitKind::expert)] = 8;  // 8 of 32
    policy.layout.kv_stages = 2;
    policy.layout.compute().kv_bytes = 1;
    policy.layout.compute().kv_spill_bytes = 64 * kMiB;  // bytes of all sequences
  }
  Prediction predicted(const PlannedWork& work) const {
    PredictionInputs with = bench.prediction_inputs();
    with.facts = [](const WeightUnit&) { return UnitFacts{300'000, false, 300'000}; };
    return predict(with, policy, work);
  }
};

TEST(Prediction, ABusCarriesNoMoreThanItCan) {
  const BesideWeights both;
  for (const int64_t tokens : {16, 200, 800, 2000}) {
    const Prediction found = both.predicted(
        {.sequences = 8, .prompt_tokens = tokens, .generated_tokens = 40, .at_once = 8});
    const auto weights = static_cast<double>(found.totals.lane(Lane::kToDevice).bytes) * 1e-9;
    const double kv = in_seconds(found.totals.lane(Lane::kKvIn).busy);
    EXPECT_GT(kv, 0.0);
    EXPECT_GT(weights, 0.0);
    EXPECT_LE(weights + kv, 1.1 * found.seconds()) << tokens;
  }
}

// Keys and values come in whole pages: within a page more positions take no longer.
TEST(Prediction, PagesOfKeysAndValuesComeWhole) {
  const BesideWeights both;
  const auto comes = [&](int64_t prompt) {
    const Prediction found = both.predicted(
        {.sequences = 8, .prompt_tokens = prompt, .generated_tokens = 2, .at_once = 8});
    return in_seconds(found.totals.lane(Lane::kKvIn).busy);
  };
  // Copies share the bus with more or fewer weights: their times differ a little.
  EXPECT_NEAR(comes(19) / comes(27), 1.0, 0.1) << "two pages";
  EXPECT_GT(comes(40) / comes(27), 1.3) << "three pages";
}

// Keys and values of all sequences of a micro-batch are written back in one copy.
TEST(Prediction, KeysAndValuesGoBackTogether) {
  const BesideWeights both;
  const auto written = [&](int64_t generated) {
    const Prediction found = both.predicted(
        {.sequences = 8, .prompt_tokens = 16, .generated_tokens = generated, .at_once = 8});
    return in_seconds(found.totals.lane(Lane::kKvOut).busy);
  };
  const auto layers = static_cast<double>(both.bench.model.layers.size());
  const auto copies = static_cast<double>(both.policy.group.micro_batches);
  EXPECT_NEAR(written(21) - written(11), 10 * layers * copies * 1e-4, 1e-9) << "ten passes";
}

// Two sequences beyond a group of 8 use some experts less: they take about half as long as 8 more
// would, not a quarter.
TEST(Prediction, ASmallLastGroupBringsAllWeights) {
  const BesideWeights both;
  const auto seconds = [&](int64_t sequences) {
    PredictionInputs with = both.bench.prediction_inputs();
    with.facts = [](const WeightUnit&) { return UnitFacts{300'000, false, 300'000}; };
    const PlannedWork work{
        .sequences = sequences, .prompt_tokens = 16, .generated_tokens = 40, .at_once = 8};
    const Prediction found = predict(with, both.policy, work, {.most_groups = 1});
    EXPECT_NEAR(found.generated_tokens, static_cast<double>(sequences) * 40, 1e-9);
    return found.seconds();
  };
  EXPECT_GT(seconds(10), seconds(8) + 0.4 * (seconds(16) - seconds(8)));
  EXPECT_LE(seconds(10), 1.05 * seconds(16));
}

// Weights in memory are not brought again: all are there after the first group.
TEST(Prediction, ALastGroupFindsWhatTheFirstOneLeft) {
  Bench bench;
  const Policy policy = resident_policy(bench.model);
  const auto read = [&](int64_t sequences) {
    const PlannedWork work{
        .sequences = sequences, .prompt_tokens = 16, .generated_tokens = 4, .at_once = 8};
    const Prediction found = predict(bench.prediction_inputs(), policy, work, {.most_groups = 1});
    EXPECT_NEAR(found.generated_tokens, static_cast<double>(sequences) * 4, 1e-9);
    return found.totals.lane(Lane::kDiskRead).bytes;
  };
  EXPECT_GT(read(8), 0u);
  EXPECT_EQ(read(10), read(8));
  EXPECT_EQ(read(26), read(8));
}

// Without a disk, weights, keys and values come as from a disk beyond measure.
TEST(Prediction, WithoutADiskReadsTakeNoTime) {
  Bench bench;
  bench.unit_bytes = 10'000'000;
  widen_keys_and_values(bench.model);
  Policy policy = resident_policy(bench.model);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 8;  // 8 of 32
  policy.layout.kv_stages = 2;
  policy.layout.compute().kv_bytes = policy.layout.compute().kv_spill_bytes = kMiB;
  const PlannedWork work{.sequences = 8, .prompt_tokens = 64, .generated_tokens = 5, .at_once = 8};
  bench.profile.machine.disk().bytes_per_second = 0;
  for (const double into_new_memory : {0.0, 1e9}) {
    bench.profile.machine.disk().bytes_per_second_into_new_memory = into_new_memory;
    const Prediction none = predict(bench.prediction_inputs(), policy, work);
    EXPECT_EQ(none.totals.lane(Lane::kDiskRead).busy.count(), 0);
    EXPECT_GT(none.totals.lane(Lane::kDiskRead).bytes, 0u);
    EXPECT_EQ(none.totals.lane(Lane::kKvIn).busy.count(), 0);
    EXPECT_EQ(none.totals.lane(Lane::kKvOut).busy.count(), 0);
    EXPECT_TRUE(std::isfinite(none.tokens_per_second()));
    EXPECT_GT(none.tokens_per_second(), 0.0);
  }
  const double without = predict(bench.prediction_inputs(), policy, work).decode_seconds;
  bench.profile.machine.disk().bytes_per_second = 1e18;
  const double fast = predict(bench.prediction_inputs(), policy, work).decode_seconds;
  EXPECT_NEAR(without, fast, 0.01 * fast);
}

TEST(Prediction, ABlockWithoutADiskTransfersInNoTime) {
  Bench bench;
  Policy policy = resident_policy(bench.model);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 8;  // 8 of 32
  EXPECT_GT(block_model(bench.prediction_inputs(), policy, 16.0)->seconds.expert_transfer, 0.0);
  bench.profile.machine.disk().bytes_per_second = 0;
  const BlockModel block = block_model(bench.prediction_inputs(), policy, 16.0).value();
  EXPECT_EQ(block.seconds.expert_transfer, 0.0);
  EXPECT_EQ(block.seconds.attention_transfer, 0.0);
}

// The first read into each slot is slower, and takes time from computing.
TEST(Prediction, MemoryIsFoundOnce) {
  Bench bench;
  const PredictionInputs with = bench.prediction_inputs();
  const Policy policy = resident_policy(bench.model);
  const PlannedWork work{.sequences = 8, .prompt_tokens = 16, .generated_tokens = 5, .at_once = 8};
  const Prediction found = predict(with, policy, work);
  bench.profile.machine.disk().bytes_per_second_into_new_memory = 0.25e9;
  bench.profile.machine.cpu().takes_while_finding_memory = 2.0;
  const Prediction sought = predict(with, policy, work);
  const auto reading = [](const Prediction& p) {
    return in_seconds(p.totals.lane(Lane::kDiskRead).busy);
  };
  EXPECT_NEAR(reading(sought), 4 * reading(found), 1e-6);
  EXPECT_GT(sought.totals.lane(Lane::kCompute).busy, found.totals.lane(Lane::kCompute).busy);
  EXPECT_LE(sought.totals.lane(Lane::kCompute).busy, 2 * found.totals.lane(Lane::kCompute).busy);
}

}  // namespace
}  // namespace klotski
