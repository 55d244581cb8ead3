// Schedules of models whose experts are more than their slots: who gets a slot, who gives one up,
// and what that costs.

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/simulate.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

Policy policy_of(int64_t layers, int64_t expert_slots) {
  Policy policy;
  policy.group.micro_batches = 1;
  policy.layout.compute().slots = {1, layers, layers, 0, expert_slots};
  return policy;
}

ScheduleContext context_of(const ModelDescription& model) {
  return {.model = model,
          .group = std::vector<MicroBatchShape>(1),
          .facts =
              [](const WeightUnit&) {
                return UnitFacts{1, false, 1};
              },
          .hot = [](LayerId) { return std::vector<ExpertId>{}; }};
}

// Loads of experts and computing an expert take 10 ns, all else no time: while one expert is
// computed the next ones come, so that passes take hardly longer than their loads.
TEST(FewSlots, ExpertsComeWhileOthersAreComputed) {
  constexpr int64_t kLayers = 4;
  constexpr int kPasses = 8;
  const Nanoseconds step(10);
  const ModelDescription model = shape_of(kLayers, 16, 2);
  for (const int64_t slots : {3, 4, 6, 8}) {
    const Policy policy = policy_of(kLayers, slots);
    Residency residency(model, policy);
    std::mt19937_64 random(3);
    RoutingTable routing;
    Timeline timeline(0);
    Simulation simulation(
        [&](const Task& task) {
          return task.unit.kind == UnitKind::expert ? step : Nanoseconds(0);
        },
        [&](LayerId layer, int32_t) { return routing[static_cast<size_t>(layer.value)][0]; },
        timeline);
    const auto schedule = make_schedule(Strategy::klotski);
    for (int pass = 0; pass < kPasses; ++pass) {
      routing = random_routing(random, model, 1);
      simulation.begin_pass();
      FragmentBuilder build(policy, residency, context_of(model));
      run_pass(*schedule, build, simulation);
      simulation.submit(build.take());
    }
    const Nanoseconds end = simulation.end(Lane::kCompute);
    const Nanoseconds loading = timeline.totals().lane(Lane::kDiskRead).busy;
    EXPECT_GT(loading, kPasses * step);
    // Nothing comes while the last expert of a layer is computed: the next gate has not chosen.
    EXPECT_LE(end, loading + kLayers * kPasses * step) << slots << " slots";
  }
}

// A sink that looks at the loads ahead whenever tasks are given out.
class LoadsAhead : public RecordingSink {
 public:
  LoadsAhead(const RoutingTable& routing, const Residency& residency)
      : RecordingSink(routing), residency_(residency) {}
  void submit(Fragment fragment) override {
    most = std::max(most, residency_.loads_ahead());
    RecordingSink::submit(std::move(fragment));
  }
  int64_t most = 0;

 private:
  const Residency& residency_;
};

TEST(FewSlots, NoMoreLoadsAreAheadThanThePolicyAllows) {
  std::mt19937_64 random(5);
  int reached = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const ModelDescription model = random_shape(random);
    Policy policy = random_policy(random, model);
    policy.strategy = Strategy::klotski;
    policy.cache.loads_ahead = between(random, 1, 4);
    Residency residency(model, policy);
    for (int pass = 0; pass < 2; ++pass) {
      const RoutingTable routing = random_routing(random, model, policy.group.micro_batches);
      LoadsAhead sink(routing, residency);
      FragmentBuilder build(policy, residency,
                            random_context(random, model, policy.group.micro_batches));
      run_pass(*make_schedule(policy.strategy), build, sink);
      ASSERT_LE(sink.most, policy.cache.loads_ahead) << "trial " << trial;
      if (sink.most == policy.cache.loads_ahead) ++reached;
    }
  }
  EXPECT_GT(reached, 100);
}

// Whether an expert of the first layer is asked for as one that may be used.
bool may_request(FragmentBuilder& build, int64_t expert) {
  const WeightUnit unit = expert_unit(build.context().model, LayerId(0), ExpertId(expert));
  return build.request(unit, LoadReason::prefetch);
}

// Prompts that borrow slots use most experts: nothing is gained by bringing few of them ahead.
TEST(FewSlots, LoadsAheadAreNotLimitedWhileSlotsAreLent) {
  const ModelDescription model = shape_of(1, 8, 2);
  Policy policy = policy_of(1, 6);
  policy.cache.loads_ahead = 1;
  Residency residency(model, policy);
  FragmentBuilder build(policy, residency, context_of(model));
  EXPECT_TRUE(may_request(build, 0));
  EXPECT_FALSE(may_request(build, 1));
  residency.lend_slots(2);
  for (int64_t expert = 0; expert < 4; ++expert) EXPECT_TRUE(may_request(build, expert)) << expert;
  EXPECT_FALSE(may_request(build, 4)) << "no slot is left";
}

// The unit that was leased last is needed last: it gives way, but never to itself.
TEST(Residency, TheLatestLeaseGivesWay) {
  const ModelDescription model = shape_of(1, 8, 2);
  const Policy policy = policy_of(1, 3);
  Residency residency(model, policy);
  const auto expert = [&](int64_t number) {
    return expert_unit(model, LayerId(0), ExpertId(number));
  };
  for (int64_t e = 0; e < 3; ++e) EXPECT_TRUE(residency.lease(expert(e)));
  EXPECT_FALSE(residency.lease(expert(3)));
  residency.give_way(expert(3), kComputeTier);
  EXPECT_TRUE(residency.leased(expert(0)));
  EXPECT_TRUE(residency.leased(expert(1)));
  EXPECT_FALSE(residency.leased(expert(2)));
  residency.give_way(expert(1), kComputeTier);
  EXPECT_FALSE(residency.leased(expert(0)));
  EXPECT_TRUE(residency.leased(expert(1)));
}

// An expert that may be used later replaces no expert that is to stay.
TEST(Residency, KeptExpertsDoNotLeaveForGuesses) {
  const ModelDescription model = shape_of(1, 8, 2);
  Policy policy = policy_of(1, 3);
  policy.cache.kept_experts = 2;
  Residency residency(model, policy);
  FragmentBuilder build(policy, residency, context_of(model));
  for (int64_t kept = 0; kept < 2; ++kept) {
    const WeightUnit unit = expert_unit(model, LayerId(0), ExpertId(kept));
    EXPECT_TRUE(residency.lease(unit));
    residency.release(unit);
  }
  EXPECT_TRUE(may_request(build, 2));
  EXPECT_FALSE(may_request(build, 3)) << "the third slot is taken";
  residency.release(expert_unit(model, LayerId(0), ExpertId(2)));
  EXPECT_TRUE(may_request(build, 3));
  EXPECT_TRUE(residency.resident(expert_unit(model, LayerId(0), ExpertId(0))));
  EXPECT_TRUE(residency.resident(expert_unit(model, LayerId(0), ExpertId(1))));
}

// Units on their way to a device pass through the slots of host memory, however few there are.
TEST(Residency, UnitsPassThroughOneSlot) {
  const ModelDescription model = shape_of(1, 8, 2);
  Policy policy = policy_of(1, 3);
  policy.layout.set_host_slots({1, 1, 1, 0, 1});
  Residency residency(model, policy);
  for (int64_t e = 0; e < 8; ++e) {
    const WeightUnit unit = expert_unit(model, LayerId(0), ExpertId(e));
    const Residency::Leased leased = residency.pass_through(unit, kHostTier);
    EXPECT_TRUE(leased.must_load);
    EXPECT_EQ(leased.slot, 0);
    EXPECT_FALSE(residency.pass_through(unit, kHostTier).must_load);
  }
}

}  // namespace
}  // namespace klotski
