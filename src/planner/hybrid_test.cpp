// The division of experts between a device and the CPU, on a machine of round numbers: the
// schedule's use of link and CPU together, without either.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "planner/expert_costs.h"
#include "planner/testing.h"

namespace klotski {
namespace {

constexpr double kExpertBytes = 352e6;
constexpr double kLinkRate = 55e9;
constexpr double kCpuRate = 240e9;

// 32 layers of 8 large experts. Rows cost little compared with the weights that are read for them.
struct LargeMachine {
  ModelDescription model;
  Profile profile = plain_profile(model);
  ExpertShares shares{model};
  bool slices = false;

  explicit LargeMachine(int64_t layers = 32) : model(shape_of(layers, 8, 2)) {
    model.hidden = 4096;
    const Curve link({1e3, 1e9}, {1e3 / kLinkRate + 10e-6, 1e9 / kLinkRate});
    profile.machine.links = {{.weights = link, .rows_up = link, .rows_down = link}};
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

  PredictionInputs prediction_inputs() const {
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
    policy.group.micro_batch = sequences;
    policy.group.micro_batches = 1;
    policy.group.micro_batch_rows = sequences;
    policy.layout.compute().slots[index_of(UnitKind::expert)] = 56;
    std::array<int64_t, kUnitKinds> all_units{};
    for (size_t k = 0; k < kUnitKinds; ++k) {
      all_units[k] = static_cast<int64_t>(units_of(model, static_cast<UnitKind>(k)).size());
    }
    policy.layout.set_host_slots(all_units);
    policy.cache.loads_ahead = 3;
    policy.cache.kept_experts = 52;
    if (strategy == Strategy::hybrid) {
      policy.division.shared_rows = 1024;
      policy.division.slices_experts = slices;
      policy.division.costs = expert_costs(prediction_inputs(), policy, 512);
    }
    return policy;
  }

  // Totals of a pass of decoding rows that follows others like it.
  TimelineTotals decode_step(Strategy strategy, int64_t sequences) const {
    const PredictionInputs with = prediction_inputs();
    const Policy used = policy(strategy, sequences);
    PassSimulator simulator(with, used);
    const PassShape shape{.decoding_rows = static_cast<double>(sequences),
                          .positions = 512,
                          .logit_rows = static_cast<double>(sequences)};
    for (int i = 0; i < 4; ++i) simulator.play(shape);
    return simulator.play(shape);
  }
};

TEST(Hybrid, TheCpusExpertsTakeLongerBesideCopies) {
  LargeMachine machine(2);
  const auto seconds = [&] {
    return machine.policy(Strategy::hybrid, 16).division.costs.kinds.at(0).cpu.at(16);
  };
  const double alone = seconds();
  machine.profile.machine.cpu().takes_while_copying = 1.5;
  EXPECT_DOUBLE_EQ(seconds(), 1.5 * alone);
}

// All experts are used: 204 of 256 are not kept, and link and CPU together cannot read them in less
// time than this.
TEST(Hybrid, ALayerTakesAboutWhatLinkAndCpuTakeTogether) {
  const LargeMachine machine;
  const double bound = 204 * kExpertBytes / (kLinkRate + kCpuRate);
  const TimelineTotals step = machine.decode_step(Strategy::hybrid, 64);
  EXPECT_GT(in_seconds(step.elapsed), bound);
  EXPECT_LT(in_seconds(step.elapsed), bound / 0.85);
  EXPECT_GT(step.percent(step.lane(Lane::kToDevice).busy), 85.0);
  EXPECT_GT(step.percent(step.lane(Lane::kCpu).busy), 85.0);
  const TimelineTotals link_only = machine.decode_step(Strategy::klotski, 64);
  EXPECT_GT(in_seconds(link_only.elapsed), 4.0 * in_seconds(step.elapsed));
}

// One sequence uses two experts a layer: the CPU computes those that are not on the device.
TEST(Hybrid, OneSequenceIsNotHeldUpByTheLink) {
  const LargeMachine machine;
  const TimelineTotals step = machine.decode_step(Strategy::hybrid, 1);
  const double misses = 2 * 32 * 204.0 / 256;
  EXPECT_LT(in_seconds(step.elapsed), 1.2 * misses * kExpertBytes / kCpuRate + 32 * 0.5e-3);
}

// The link brings a part of an expert that is not on the device while the CPU computes the rest.
TEST(Hybrid, OneSequenceTakesLinkAndCpuTogether) {
  LargeMachine machine;
  const TimelineTotals whole = machine.decode_step(Strategy::hybrid, 1);
  machine.slices = true;
  const TimelineTotals sliced = machine.decode_step(Strategy::hybrid, 1);
  EXPECT_LT(in_seconds(sliced.elapsed), 0.93 * in_seconds(whole.elapsed));
}

// Whole experts leave link or CPU waiting for up to the time of one expert.
TEST(Hybrid, WithSlicesLinkAndCpuEndTogether) {
  LargeMachine machine;
  const TimelineTotals whole = machine.decode_step(Strategy::hybrid, 64);
  machine.slices = true;
  const TimelineTotals sliced = machine.decode_step(Strategy::hybrid, 64);
  EXPECT_LT(in_seconds(sliced.elapsed), 0.97 * in_seconds(whole.elapsed));
  EXPECT_GT(sliced.percent(sliced.lane(Lane::kCpu).busy), 92.0);
}

// A policy in which keys and values of all sequences lie in host memory and come for each layer's
// attention.
Policy with_kv_on_host(const LargeMachine& machine, int64_t stages) {
  Policy policy = machine.policy(Strategy::hybrid, 64);
  policy.group.micro_batch = 16;
  policy.group.micro_batches = 4;
  policy.layout.kv_stages = stages;
  policy.layout.compute().kv_spill_bytes = kGiB;
  policy.division.costs = expert_costs(machine.prediction_inputs(), policy, 512);
  return policy;
}

struct LargeMachineWithKv : LargeMachine {
  explicit LargeMachineWithKv(int64_t layers = 32) : LargeMachine(layers) {
    for (Layer& layer : model.layers) {
      layer.attention.grouped_heads().query_heads = 32;
      layer.attention.grouped_heads().kv_heads = 8;
      layer.attention.grouped_heads().head_dim = 128;
    }
  }
};

// Keys and values without a stage of their own are waited for between layers, all of them between
// passes.
TEST(Hybrid, CostsKnowWhatKeysAndValuesTakeOfTheLinkAndHowLongTheyAreWaitedFor) {
  const LargeMachineWithKv machine;
  const double bytes = 64.0 * 512 * 2 * 8 * 128 * sizeof(uint16_t);
  const double on_link = bytes / kLinkRate;
  const Policy none = machine.policy(Strategy::hybrid, 64);
  const Policy few = with_kv_on_host(machine, 2);
  const Policy all = with_kv_on_host(machine, 4);
  const ExpertCosts& costs_few = few.division.costs.kinds.front();
  const ExpertCosts& costs_all = all.division.costs.kinds.front();
  EXPECT_EQ(none.division.costs.kinds.front().kv, 0.0);
  EXPECT_NEAR(costs_few.kv, on_link, 0.05 * on_link);
  EXPECT_EQ(costs_few.kv, costs_all.kv);
  EXPECT_NEAR(costs_few.between - costs_all.between, on_link / 2, 0.05 * on_link);
  EXPECT_NEAR(all.division.costs.between_passes - few.division.costs.between_passes, on_link / 2,
              0.05 * on_link);
  EXPECT_GT(none.division.costs.between_passes, 0.0) << "logits and embeddings";
}

// The link has less time for experts then: the CPU computes more of them, and both end together.
TEST(Hybrid, KeysAndValuesOnTheLinkLeaveMoreToTheCpu) {
  LargeMachineWithKv machine;
  machine.slices = true;
  const PredictionInputs with = machine.prediction_inputs();
  const PassShape shape{.micro_batches = 4, .decoding_rows = 16, .positions = 512};
  const auto played = [&](const Policy& policy) {
    PassSimulator simulator(with, policy);
    for (int i = 0; i < 4; ++i) simulator.play(shape);
    return simulator.play(shape);
  };
  const Policy knowing = with_kv_on_host(machine, 4);
  Policy unknowing = knowing;
  for (ExpertCosts& costs : unknowing.division.costs.kinds) costs.kv = 0.0;
  const TimelineTotals known = played(knowing);
  const TimelineTotals unknown = played(unknowing);
  EXPECT_LT(known.lane(Lane::kToDevice).bytes, unknown.lane(Lane::kToDevice).bytes);
  EXPECT_LT(known.elapsed, unknown.elapsed);
}

// All experts of all layers are chosen.
struct Recorded : TaskSink {
  std::vector<std::string> lines;

  void submit(Fragment fragment) override {
    for (const Task& task : fragment) lines.push_back(format_task(task));
  }
  std::vector<ExpertId> chosen(LayerId, int32_t) override {
    std::vector<ExpertId> all;
    for (int64_t e = 0; e < 8; ++e) all.emplace_back(e);
    return all;
  }
  bool withdraw(const WeightUnit&, TierId) override { return false; }
};

// The first layer is asked for by the pass before it and by its own: its keys and values take of
// the link's time once, however often it is.
TEST(Hybrid, KeysAndValuesAreBookedOnceALayer) {
  LargeMachineWithKv machine(2);
  machine.slices = true;  // the division turns on every moment of the link
  const PredictionInputs with = machine.prediction_inputs();
  Policy policy = with_kv_on_host(machine, 4);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 6;
  policy.cache.kept_experts = 0;
  policy.division.costs.kinds.front().kv = 0.3 * policy.division.costs.kinds.front().link;
  const auto second_pass = [&](int asked_before) {
    Residency residency(machine.model, policy);
    const std::unique_ptr<Schedule> schedule = make_schedule(Strategy::hybrid);
    const ScheduleContext context{
        .model = machine.model,
        .group = std::vector<MicroBatchShape>(4, {.spilled = true, .rows = 16, .decodes = true}),
        .facts = with.facts,
        .hot =
            [](LayerId) {
              return std::vector{ExpertId(0), ExpertId(1)};
            },
        .rows = [](ExpertId) { return 16.0; }};
    Recorded first;
    FragmentBuilder build(policy, residency, context);
    run_pass(*schedule, build, first);
    Recorded second;
    for (int i = 0; i < asked_before; ++i) schedule->prefetch(build, LayerId(0));
    second.submit(build.take());
    run_pass(*schedule, build, second);
    std::sort(second.lines.begin(), second.lines.end());
    return second.lines;
  };
  EXPECT_EQ(second_pass(0), second_pass(1));
  EXPECT_EQ(second_pass(0), second_pass(4));
}

TEST(Hybrid, WithoutMeasurementsOfTheCpuThereAreNoCosts) {
  LargeMachine machine;
  machine.profile.model.kinds.front().expert_on_cpu = {};
  EXPECT_TRUE(expert_costs(machine.prediction_inputs(), {}, 512).empty());
}

}  // namespace
}  // namespace klotski
