#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "schedule/link_pace.h"
#include "schedule/pass.h"
#include "schedule/simulate.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

using std::chrono::nanoseconds;

WeightUnit expert(int64_t layer, int64_t number) {
  return {.kind = UnitKind::expert, .layer = LayerId(layer), .expert = ExpertId(number)};
}

// Two layers of six experts, of which a token chooses one; four experts fit.
class PriorityPrefetch : public ::testing::Test {
 protected:
  PriorityPrefetch() {
    policy.strategy = Strategy::predictive;
    policy.cache.eviction = "activation-aware";
    policy.layout.compute().slots = {1, 2, 2, 0, 4};
  }

  ScheduleContext context(std::vector<LayerProbabilities> coming, double loads_a_layer) {
    return {.model = model,
            .group = std::vector<MicroBatchShape>(1, {.rows = 1}),
            .facts =
                [](const WeightUnit&) {
                  return UnitFacts{1000, false, 1000};
                },
            .hot = [](LayerId) { return std::vector<ExpertId>(); },
            .coming = [coming] { return coming; },
            .loads_a_layer = loads_a_layer};
  }

  // The experts that a pass of one row brings, with those that were guessed in brackets.
  std::string brought(std::vector<LayerProbabilities> coming, double loads_a_layer,
                      bool guesses_have_begun) {
    Residency residency(model, policy);
    for (const LayerProbabilities& expected : coming) residency.expect(expected);
    RecordingSink sink(routing);
    sink.guesses_have_begun = guesses_have_begun;
    FragmentBuilder build(policy, residency, context(std::move(coming), loads_a_layer));
    run_pass(*make_schedule(policy.strategy), build, sink);
    std::string text;
    for (const Task& task : sink.tasks) {
      if (task.work != Work::load || task.unit.kind != UnitKind::expert) continue;
      const std::string name = fmt::format("{}.{}", task.unit.layer.value, task.unit.expert.value);
      text += (text.empty() ? "" : " ") + (is_guess(task) ? "[" + name + "]" : name);
    }
    return text;
  }

  const ModelDescription model = shape_of(2, 6, 1);
  const RoutingTable routing = {{{ExpertId(1)}}, {{ExpertId(3)}}};
  Policy policy;
};

TEST_F(PriorityPrefetch, BringsTheLikelyBeforeTheGatesAsk) {
  EXPECT_EQ(brought({{LayerId(0), {0, 0.9, 0, 0, 0.8, 0}}}, 2.0, true), "[0.1] [0.4] 1.3");
}

TEST_F(PriorityPrefetch, WithoutPredictionsOnlyDemandIsLeft) {
  EXPECT_EQ(brought({}, 1.0, true), "0.1 1.3");
}

// Where the link is slow, a guess has to be nearly certain: 0.5 is not enough for a quarter.
TEST_F(PriorityPrefetch, LeavesASlowLinkToDemand) {
  EXPECT_EQ(brought({{LayerId(0), {0, 0, 0, 0, 0.5, 0}}}, 0.25, true), "0.1 1.3");
}

// A single guess has not begun when the gates have chosen it: it comes as all that is needed.
TEST_F(PriorityPrefetch, ATakenBackExpertIsAskedForAgain) {
  EXPECT_EQ(brought({{LayerId(0), {0, 0.9, 0, 0, 0, 0}}}, 1.0, false), "0.1 1.3");
}

// Guesses in a simulation whose loads take 10 ns each.
class SimulatedGuesses : public ::testing::Test {
 protected:
  static Task guess(int64_t number, int32_t slot) {
    return {.work = Work::load,
            .lane = Lane::kToDevice,
            .unit = expert(0, number),
            .slot = slot,
            .priority = 0.5F + kGuessPriority,
            .writes = {{Place::slot, slot, UnitKind::expert}}};
  }
  static Task compute() { return {.work = Work::gate, .writes = {{Place::routing, 0}}}; }

  Timeline timeline{100};
  Simulation simulation{[](const Task&) { return nanoseconds(10); },
                        [](LayerId, int32_t) { return std::vector<ExpertId>(); }, timeline};
};

// The gate ends at 10 ns: by then the first load has begun, the second has not.
TEST_F(SimulatedGuesses, ThatHaveBegunAreNotWithdrawn) {
  simulation.submit({guess(1, 1), guess(2, 2), compute()});
  EXPECT_FALSE(simulation.withdraw(expert(0, 1), kComputeTier));
  EXPECT_TRUE(simulation.withdraw(expert(0, 2), kComputeTier));
  EXPECT_FALSE(simulation.withdraw(expert(0, 2), kComputeTier)) << "once";
  EXPECT_EQ(simulation.end(Lane::kToDevice), nanoseconds(10));
  Task other = guess(3, 2);
  other.priority = 0;
  simulation.submit({other});
  EXPECT_EQ(simulation.end(Lane::kToDevice), nanoseconds(20));
}

// A load and what settles it go together, and leave nothing behind that would be played.
TEST_F(SimulatedGuesses, AreWithdrawnWithWhatSettlesThem) {
  Task settle = guess(2, 2);
  settle.work = Work::settle;
  settle.lane = Lane::kHostCopy;
  simulation.submit({guess(1, 1), guess(2, 2), settle, compute()});
  EXPECT_TRUE(simulation.withdraw(expert(0, 2), kComputeTier));
  EXPECT_EQ(simulation.end(), nanoseconds(10));
  simulation.begin_pass();
  EXPECT_FALSE(simulation.withdraw(expert(0, 2), kComputeTier));
}

// The fetch of a withdrawn load can be withdrawn too: no disk is read for it.
TEST_F(SimulatedGuesses, AreWithdrawnBeforeTheirFetch) {
  const Resource below{Place::slot, 5, UnitKind::expert, kHostTier};
  Task first = guess(1, 1);
  Task fetch = guess(2, 5);
  for (Task* at_host : {&first, &fetch}) {
    at_host->work = Work::fetch;
    at_host->lane = Lane::kDiskRead;
    at_host->tier = kHostTier;
  }
  fetch.writes = {below};
  Task load = guess(2, 2);
  load.reads = {below};
  simulation.submit({first, fetch, load, compute()});
  EXPECT_TRUE(simulation.withdraw(expert(0, 2), kComputeTier));
  EXPECT_TRUE(simulation.withdraw(expert(0, 2), kHostTier));
  EXPECT_EQ(simulation.end(Lane::kDiskRead), nanoseconds(10));
}

TEST_F(SimulatedGuesses, AGuessThatIsMadeAgainCanBeWithdrawnAgain) {
  simulation.submit({guess(1, 1), compute()});
  EXPECT_FALSE(simulation.withdraw(expert(0, 1), kComputeTier));
  simulation.submit({guess(3, 3), guess(1, 2)});
  EXPECT_TRUE(simulation.withdraw(expert(0, 1), kComputeTier));
}

TEST_F(SimulatedGuesses, OthersAreNotWithdrawn) {
  Task demand = guess(1, 1);
  demand.priority = 0;
  simulation.submit({demand});
  EXPECT_FALSE(simulation.withdraw(expert(0, 1), kComputeTier));
}

// Layers of 2 s each, and an expert of 1000 bytes that comes in 4 s.
TEST(LinkPaceTest, SaysHowManyExpertsComeWhileALayerComputes) {
  const ModelDescription model = shape_of(2, 6, 1);
  Policy policy;
  policy.layout.set_host_slots({1, 2, 2, 0, 12});
  LinkPace pace(model, policy, [](const WeightUnit&) { return UnitFacts{9999, false, 1000}; });
  EXPECT_DOUBLE_EQ(pace.pace().loads_a_layer(), 1.0) << "not known yet";
  TimelineTotals totals;
  totals.lanes.at(Lane::kCompute).busy = std::chrono::seconds(4);
  totals.lanes.at(Lane::kToDevice) = {.busy = std::chrono::seconds(8), .spans = 2, .bytes = 2000};
  pace.pass_over(totals, 1);
  EXPECT_DOUBLE_EQ(pace.pace().load_seconds, 4.0);
  EXPECT_DOUBLE_EQ(pace.pace().layer_seconds, 2.0);
  EXPECT_DOUBLE_EQ(pace.pace().loads_a_layer(), 0.5);
  totals.lanes.at(Lane::kCompute).busy = std::chrono::seconds(400);
  pace.pass_over(totals, kMostGuessedRows + 1);
  EXPECT_DOUBLE_EQ(pace.pace().loads_a_layer(), 0.5) << "a prompt says nothing";
  totals.lanes.at(Lane::kCompute).busy = std::chrono::seconds(408);
  pace.pass_over(totals, 1);
  EXPECT_DOUBLE_EQ(pace.pace().loads_a_layer(), 1.0) << "nothing was loaded: the link is as it was";
}

}  // namespace
}  // namespace klotski
