// The division of experts between a device and the CPU beside it, on a machine of round numbers:
// what the schedule makes of link and CPU together, without either.

#include <gtest/gtest.h>

#include "planner/expert_costs.h"
#include "planner/testing.h"

namespace klotski {
namespace {

constexpr double kExpertBytes = 352e6;
constexpr double kLinkRate = 55e9;
constexpr double kCpuRate = 240e9;

// 32 layers of 8 large experts. Rows cost little beside the weights that are read for them.
struct LargeMachine {
  ModelDescription model = shape_of(32, 8, 2);
  Profile profile = plain_profile(model);
  ExpertShares shares{model};
  bool slices = false;

  LargeMachine() {
    model.hidden = 4096;
    for (const LinkCurve& one : kLinkCurves) {
      profile.machine.*one.curve = Curve({1e3, 1e9}, {1e3 / kLinkRate + 10e-6, 1e9 / kLinkRate});
    }
    LayerProfile& layer = profile.model.kinds.front();
    layer.attention_products = constant(200e-6);
    layer.attend_decode = constant(2e-6);
    layer.route = constant(50e-6);
    layer.combine = constant(30e-6);
    layer.expert = constant(140e-6);
    layer.attend_decode_on_cpu = constant(10e-6);
    layer.expert_on_cpu = Curve({1, 16, 1024}, {kExpertBytes / kCpuRate, kExpertBytes / kCpuRate,
                                                50 * kExpertBytes / kCpuRate});
  }

  Machinery machinery() const {
    return {.model = model,
            .profile = profile,
            .facts =
                [](const WeightUnit& unit) {
                  const uint64_t bytes =
                      unit.kind == UnitKind::expert ? static_cast<uint64_t>(kExpertBytes) : 1000;
                  return UnitFacts{bytes, false, bytes};
                },
            .shares = shares};
  }

  Policy policy(Strategy strategy, int64_t sequences) const {
    Policy policy = resident_policy(model);
    policy.strategy = strategy;
    policy.micro_batch = sequences;
    policy.micro_batches = 1;
    policy.micro_batch_rows = sequences;
    policy.slots[index_of(UnitKind::expert)] = 56;
    for (size_t k = 0; k < kUnitKinds; ++k) {
      policy.slots_below[k] =
          static_cast<int64_t>(units_of(model, static_cast<UnitKind>(k)).size());
    }
    policy.loads_ahead = 3;
    policy.kept_experts = 52;
    if (strategy == Strategy::hybrid) {
      policy.shared_rows = 1024;
      policy.slices_experts = slices;
      policy.costs = expert_costs(machinery(), policy, 512);
    }
    return policy;
  }

  // Of a pass of decoding rows, what was before it left in memory.
  TimelineTotals decode_step(Strategy strategy, int64_t sequences) const {
    const Machinery with = machinery();
    const Policy used = policy(strategy, sequences);
    PassSimulator simulator(with, used);
    const PassShape shape{.decoding_rows = static_cast<double>(sequences),
                          .positions = 512,
                          .logit_rows = static_cast<double>(sequences)};
    for (int i = 0; i < 4; ++i) simulator.play(shape);
    return simulator.play(shape);
  }
};

// All experts are used: 204 of 256 are not kept, and what the link and the CPU read together in a
// step cannot take less than this.
TEST(Hybrid, ALayerTakesAboutWhatLinkAndCpuTakeTogether) {
  const LargeMachine machine;
  const double bound = 204 * kExpertBytes / (kLinkRate + kCpuRate);
  const TimelineTotals step = machine.decode_step(Strategy::hybrid, 64);
  EXPECT_GT(in_seconds(step.elapsed), bound);
  EXPECT_LT(in_seconds(step.elapsed), bound / 0.85);
  EXPECT_GT(step.percent(step.lane(Lane::to_device).busy), 85.0);
  EXPECT_GT(step.percent(step.lane(Lane::cpu).busy), 85.0);
  const TimelineTotals link_only = machine.decode_step(Strategy::klotski, 64);
  EXPECT_GT(in_seconds(link_only.elapsed), 4.0 * in_seconds(step.elapsed));
}

// One sequence uses two experts a layer: the CPU computes those that are not there.
TEST(Hybrid, OneSequenceIsNotHeldUpByTheLink) {
  const LargeMachine machine;
  const TimelineTotals step = machine.decode_step(Strategy::hybrid, 1);
  const double misses = 2 * 32 * 204.0 / 256;
  EXPECT_LT(in_seconds(step.elapsed), 1.2 * misses * kExpertBytes / kCpuRate + 32 * 0.5e-3);
}

// Of what is not there the link brings a part while the CPU computes the rest.
TEST(Hybrid, OneSequenceTakesLinkAndCpuTogether) {
  LargeMachine machine;
  const TimelineTotals whole = machine.decode_step(Strategy::hybrid, 1);
  machine.slices = true;
  const TimelineTotals sliced = machine.decode_step(Strategy::hybrid, 1);
  EXPECT_LT(in_seconds(sliced.elapsed), 0.93 * in_seconds(whole.elapsed));
}

// Whole experts leave one or the other waiting for up to the time of one.
TEST(Hybrid, WithSlicesLinkAndCpuEndTogether) {
  LargeMachine machine;
  const TimelineTotals whole = machine.decode_step(Strategy::hybrid, 64);
  machine.slices = true;
  const TimelineTotals sliced = machine.decode_step(Strategy::hybrid, 64);
  EXPECT_LT(in_seconds(sliced.elapsed), 0.97 * in_seconds(whole.elapsed));
  EXPECT_GT(sliced.percent(sliced.lane(Lane::cpu).busy), 92.0);
}

TEST(Hybrid, WithoutMeasurementsOfTheCpuThereAreNoCosts) {
  LargeMachine machine;
  machine.profile.model.kinds.front().expert_on_cpu = {};
  EXPECT_TRUE(expert_costs(machine.machinery(), {}, 512).empty());
}

}  // namespace
}  // namespace klotski
