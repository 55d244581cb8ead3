// Experts divided over two devices, each with a memory and a link of its own, above the program's
// memory and, in some trials, a remote one: lists of tiers, and no code of their own.

#include <gtest/gtest.h>

#include <map>

#include "hardware/machine.h"
#include "schedule/preload.h"
#include "schedule/simulate.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

using std::chrono::nanoseconds;

constexpr TierId kSecond{TierKind::compute, 1};
constexpr TierId kRemote{TierKind::remote, 0};

TierId device_of(ExpertId expert) { return expert.value % 2 == 0 ? kComputeTier : kSecond; }

// A schedule with even experts on the first device, odd ones on the second, each brought a layer
// ahead.
class OverTwoDevices : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    build.request(attention_unit(layer), LoadReason::certain);
    build.request(gate_unit(layer), LoadReason::certain);
    const int64_t experts = build.context().model.layer(layer).feed_forward.experts;
    for (int64_t e = 0; e < experts; ++e) {
      build.request(build.expert_of(layer, ExpertId(e)), LoadReason::certain,
                    device_of(ExpertId(e)));
    }
  }
  void gate_finished(FragmentBuilder&, LayerId, int32_t, const std::vector<ExpertId>&) override {}
  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    const std::vector<ExpertId> chosen = union_of(activated);
    build.rows_to(kSecond, layer);
    for (const ExpertId expert : chosen) {
      if (device_of(expert) == kSecond) build.expert_at(kSecond, layer, expert, 0);
    }
    for (const ExpertId expert : chosen) {
      if (device_of(expert) == kSecond) continue;
      const WeightUnit unit = build.expert_of(layer, expert);
      build.need(unit);
      build.expert(layer, expert, kWholeGroup);
      build.done(unit);
    }
    for (const ExpertId expert : chosen) {
      if (device_of(expert) == kSecond) build.scatter(layer, expert, 0);
    }
    for (int32_t k = 0; k < build.micro_batches(); ++k) build.combine(layer, k);
    build.done(gate_unit(layer));
  }
};

Machine two_devices(bool with_remote) {
  Machine machine = device_over_host();
  machine.tiers.insert(machine.tiers.begin() + 1, kSecond);
  machine.processors.push_back(kSecond);
  machine.links = {{kHostTier, kComputeTier}, {kHostTier, kSecond}, {kComputeTier, kSecond}};
  if (with_remote) machine.tiers.insert(machine.tiers.end() - 1, kRemote);
  const TierId last = with_remote ? kRemote : kHostTier;
  if (with_remote) machine.links.push_back({kRemote, kHostTier});
  machine.links.push_back({kDiskTier, last});
  return machine;
}

struct Slots {
  int64_t first = 0;  // slots of experts
  int64_t second = 0;
  int64_t host = 0;
  int64_t remote = 0;  // 0: there is no remote memory
};

Policy policy_over(const ModelDescription& model, const Slots& slots) {
  const int64_t layers = model.layer_count();
  const auto source = slots.remote > 0 ? kRemote : kDiskTier;
  Policy policy;
  policy.layout.tiers = {
      {.tier = kComputeTier, .source = kHostTier, .slots = {1, 2, 2, 0, slots.first}},
      {.tier = kSecond, .source = kHostTier, .slots = {0, 0, 0, 0, slots.second}},
      {.tier = kHostTier, .source = source, .slots = {1, layers, layers, 0, slots.host}}};
  if (slots.remote > 0) {
    policy.layout.tiers.push_back({.tier = kRemote, .slots = {1, layers, layers, 0, slots.remote}});
  }
  return policy;
}

// Plays passes and keeps every task with the span in which it ran.
class Played {
 public:
  Played(const ModelDescription& model, const Slots& slots, Simulation::Cost cost)
      : model_(model),
        policy_(policy_over(model, slots)),
        residency_(model, policy_),
        simulation_(
            std::move(cost), [&](LayerId, int32_t) { return std::vector<ExpertId>(all_); },
            timeline_) {
    for (int64_t e = 0; e < model.layers[0].feed_forward.experts; ++e) all_.emplace_back(e);
  }

  void preload() {
    FragmentBuilder build(policy_, residency_, context());
    for_each_preloaded(model_, policy_, build, [&] { remember(build.take()); });
  }

  nanoseconds pass() {
    simulation_.begin_pass();
    const nanoseconds began = simulation_.pass_end();
    FragmentBuilder build(policy_, residency_, context());
    OverTwoDevices schedule;
    Sink sink{*this};
    run_pass(schedule, build, sink);
    sink.submit(build.take());
    ++passes_;
    return simulation_.pass_end() - began;
  }

  const Fragment& tasks() const { return tasks_; }
  TimelineTotals totals() const { return timeline_.totals(); }

  // Spans in the order of tasks(): each lane ran its own in that order.
  std::vector<TimelineSpan> spans() const {
    LaneMap<std::vector<TimelineSpan>> of_lane;
    for (const TimelineSpan& span : timeline_.spans()) of_lane.at(span.lane).push_back(span);
    LaneMap<size_t> next;
    std::vector<TimelineSpan> spans;
    for (const Task& task : tasks_) {
      spans.push_back(of_lane.at(task.lane).at(next.at(task.lane)++));
    }
    return spans;
  }

 private:
  struct Sink : TaskSink {
    explicit Sink(Played& to) : played(to) {}
    void submit(Fragment fragment) override { played.remember(std::move(fragment)); }
    std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
      return played.simulation_.chosen(layer, micro_batch);
    }
    bool withdraw(const WeightUnit&, TierId) override { return false; }
    Played& played;
  };

  void remember(Fragment fragment) {
    tasks_.insert(tasks_.end(), fragment.begin(), fragment.end());
    simulation_.submit(std::move(fragment));
  }

  ScheduleContext context() const {
    return {.model = model_,
            .group = std::vector<MicroBatchShape>(2, {.rows = 3}),
            .facts =
                [](const WeightUnit&) {
                  return UnitFacts{1000, false, 1000};
                },
            .hot = {},
            .rows = [](ExpertId) { return 2.0; }};
  }

  const ModelDescription& model_;
  Policy policy_;
  Residency residency_;
  Timeline timeline_{100000};
  std::vector<ExpertId> all_;
  Simulation simulation_;
  Fragment tasks_;
  int passes_ = 0;
};

bool share(const std::vector<Resource>& a, const std::vector<Resource>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

// The rules of dependencies.h, said the long way.
bool must_wait(const Task& later, const Task& earlier) {
  const bool needs_written =
      share(later.reads, earlier.writes) || share(later.reads, earlier.fills) ||
      share(later.after, earlier.writes) || share(later.after, earlier.fills);
  const bool overwrites = share(later.writes, earlier.writes) ||
                          share(later.writes, earlier.reads) ||
                          share(later.writes, earlier.fills) ||
                          share(later.fills, earlier.writes) || share(later.fills, earlier.reads);
  return needs_written || overwrites;
}

void expect_rules_hold(const Played& played) {
  const std::vector<TimelineSpan> spans = played.spans();
  const Fragment& tasks = played.tasks();
  for (size_t later = 0; later < tasks.size(); ++later) {
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (!must_wait(tasks[later], tasks[earlier])) continue;
      ASSERT_GE(spans[later].start, spans[earlier].end)
          << format_task(tasks[later]) << "\nbefore the end of\n"
          << format_task(tasks[earlier]);
    }
  }
}

// Every unit that is read from a slot, over a link or by a processor, lies in it.
void expect_units_lie_where_they_are_read(const Fragment& tasks, const Slots& slots) {
  std::map<std::tuple<TierId, UnitKind, int32_t>, WeightUnit> lies;
  for (const Task& task : tasks) {
    SCOPED_TRACE(format_task(task));
    const auto here = std::tuple(task.tier, task.unit.kind, task.slot);
    if (task.work == Work::fetch || task.work == Work::load) {
      const bool from_disk = task.tier == (slots.remote > 0 ? kRemote : kHostTier);
      const TierId source = task.tier == kHostTier ? kRemote : kHostTier;
      EXPECT_EQ(task.lane, from_disk ? Lane::kDiskRead : copy_lane(source, task.tier));
      if (!from_disk) {
        ASSERT_EQ(lies.at({source, task.unit.kind, task.source_slot}), task.unit);
      }
      lies[here] = task.unit;
    } else if (task.work == Work::expert) {
      EXPECT_EQ(task.lane, compute_lane(device_of(task.unit.expert)));
      EXPECT_EQ(task.tier, device_of(task.unit.expert));
      ASSERT_EQ(lies.at(here), task.unit);
    }
  }
}

TEST(TwoDevices, EveryLaneTakesPartAndEveryRuleHolds) {
  const ModelDescription model = shape_of(3, 6, 2);
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 60; ++trial) {
    const bool remote = trial % 2 == 1;
    const Slots slots{.first = between(random, 1, 9),
                      .second = between(random, 1, 9),
                      .host = between(random, 2, 10),
                      .remote = remote ? between(random, 2, 12) : 0};
    Played played(model, slots, [&](const Task&) { return nanoseconds(between(random, 0, 20)); });
    if (trial % 3 == 0) played.preload();
    for (int pass = 0; pass < 3; ++pass) played.pass();
    expect_rules_hold(played);
    expect_units_lie_where_they_are_read(played.tasks(), slots);
    const std::vector<Lane> used = played.totals().used_lanes();
    const std::vector<Lane> lanes = two_devices(remote).lanes();
    EXPECT_TRUE(std::includes(lanes.begin(), lanes.end(), used.begin(), used.end()));
    for (const Lane lane :
         {Lane::kCompute, compute_lane(kSecond), Lane::kToDevice, copy_lane(kHostTier, kSecond),
          rows_lane(kComputeTier, kSecond), rows_lane(kSecond, kComputeTier), Lane::kDiskRead}) {
      EXPECT_GT(played.totals().lane(lane).spans, 0) << lane_name(lane);
    }
    EXPECT_EQ(played.totals().lane(copy_lane(kRemote, kHostTier)).spans > 0, remote);
    if (HasFailure()) return;
  }
}

TEST(TwoDevices, IsAsLongAsItsBusiestLaneWhereTheOthersAreFree) {
  const ModelDescription model = shape_of(3, 6, 2);
  const Slots slots{.first = 6, .second = 6, .host = 8, .remote = 10};
  for (const Lane slow : two_devices(true).lanes()) {
    Played played(model, slots,
                  [&](const Task& task) { return nanoseconds(task.lane == slow ? 10 : 0); });
    played.pass();
    const TimelineTotals totals = played.totals();
    EXPECT_EQ(totals.elapsed, totals.lane(slow).busy) << lane_name(slow);
  }
}

// Each device has a link of its own: a pass takes as long as the link that brings more.
TEST(TwoDevices, BothLinksBringWeightsAtOnce) {
  const ModelDescription model = shape_of(4, 8, 2);
  const Slots slots{.first = 8, .second = 8, .host = 32};  // two layers of a device's own
  const Lane second = copy_lane(kHostTier, kSecond);
  Played played(model, slots, [&](const Task& task) {
    return nanoseconds(task.lane == Lane::kToDevice || task.lane == second ? 10 : 0);
  });
  played.pass();
  const TimelineTotals totals = played.totals();
  // The first link brings the model's unit, and for each layer and the first one of the next pass
  // attention, gate and four experts; the second link brings four experts each.
  EXPECT_EQ(totals.lane(Lane::kToDevice).busy, nanoseconds(10 * (1 + 5 * 6)));
  EXPECT_EQ(totals.lane(second).busy, nanoseconds(10 * 5 * 4));
  EXPECT_EQ(totals.elapsed, totals.lane(Lane::kToDevice).busy);
}

// Where all memories together hold all experts nothing is brought twice.
TEST(TwoDevices, PreloadingFillsTheNearestMemoriesFirst) {
  const ModelDescription model = shape_of(2, 6, 2);
  const Slots slots{.first = 4, .second = 3, .host = 4, .remote = 12};
  Played played(model, slots, [](const Task&) { return nanoseconds(1); });
  played.preload();
  std::map<TierId, int> brought;
  for (const Task& task : played.tasks()) {
    if (task.unit.kind == UnitKind::expert) ++brought[task.tier];
  }
  EXPECT_EQ(brought[kRemote], 12) << "all, as they are numbered";
  EXPECT_EQ(brought[kComputeTier], 4);
  EXPECT_EQ(brought[kSecond], 3);
  EXPECT_EQ(brought[kHostTier], 4 + 3 + 4) << "on the way up, then what stays";
  expect_units_lie_where_they_are_read(played.tasks(), slots);
}

}  // namespace
}  // namespace klotski
