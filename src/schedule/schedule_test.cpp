#include <gtest/gtest.h>

#include <map>
#include <set>

#include "schedule/preload.h"
#include "schedule/simulate.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

// Replays a schedule in program order and checks that it makes sense. A schedule that is right in
// this order is right in every order the executor may choose, since conflicting tasks keep it.
class Replay {
 public:
  Replay(const ModelDescription& model, const Policy& policy) : model_(model), policy_(policy) {}

  // Replays a pass, after the passes before it.
  void run(const Fragment& tasks, const RoutingTable& routing) {
    routing_ = routing;
    combined_.clear();
    for (const Task& task : tasks) {
      SCOPED_TRACE(format_task(task));
      check(task);
    }
    for (size_t k = 0; k < routing_[0].size(); ++k) {
      EXPECT_EQ(combined_[static_cast<int32_t>(k)], model_.layer_count());
    }
    EXPECT_TRUE(below_way_.empty());
  }

  int computed_below = 0;
  int attended_below = 0;
  int parts = 0;  // parts of units that came in several
  int slices = 0;

 private:
  using Slot = std::pair<UnitKind, int32_t>;

  void check(const Task& task) {
    const Slot slot{task.unit.kind, task.slot};
    switch (task.work) {
      case Work::fetch:
        EXPECT_EQ(task.tier, kHostTier);
        EXPECT_LT(task.slot, policy_.layout.host()->slots[index_of(task.unit.kind)]);
        EXPECT_EQ(task.lane, Lane::kDiskRead);
        below_[slot] = task.unit;
        return;
      case Work::load:
        EXPECT_LT(task.slot, policy_.layout.compute().slots[index_of(task.unit.kind)]);
        EXPECT_EQ(task.lane, policy_.layout.host() ? Lane::kToDevice : Lane::kDiskRead);
        EXPECT_GT(task.bytes, 0u);
        if (policy_.layout.host()) {
          EXPECT_EQ(below_.at({task.unit.kind, task.source_slot}), task.unit);
        }
        if (task.sliced > 0) {
          slice_ = {task.unit, task.sliced, Work::load};
          return;
        }
        load(slot, task);
        settled_[slot] = policy_.layout.host() || task.unit.expert.value != 1;
        return;
      case Work::settle:
        EXPECT_EQ(holds_.at(slot), task.unit);
        settled_[slot] = true;
        return;
      case Work::load_kv:
        staged_[task.stage] = {task.layer, task.micro_batch};
        return;
      case Work::store_kv:
        EXPECT_EQ(staged_.at(task.stage), std::pair(task.layer, task.micro_batch));
        return;
      case Work::project:
        attend(task);
        EXPECT_EQ(holds_.at(slot), task.unit);
        buffers_[task.buffer] = {task, Work::project};
        return;
      case Work::queries_down:
        return exchange(task, Lane::kRowsDown, Work::project);
      case Work::attended_up:
        return exchange(task, Lane::kRowsUp, Work::attention_on_cpu);
      case Work::project_back:
        EXPECT_EQ(holds_.at(slot), task.unit);
        exchange(task, Lane::kCompute, Work::attended_up);
        attended_[task.micro_batch] = task.layer;
        ++attended_below;
        return;
      case Work::rows_down:
        for (const auto& [batch, layer] : gated_) EXPECT_EQ(layer, task.layer);
        rows_below_ = task.layer;
        return;
      case Work::rows_up:
        EXPECT_EQ(below_way_.at(task.unit), Work::expert_on_cpu);
        below_way_[task.unit] = Work::rows_up;
        return;
      case Work::scatter:
        EXPECT_EQ(task.lane, Lane::kCompute);
        EXPECT_EQ(below_way_.at(task.unit), Work::rows_up);
        below_way_.erase(task.unit);
        if (task.sliced > 0) {
          expect_slice(task, Work::expert);
          slice_.outputs = 0;
        }
        return run_expert(task);
      default:
        break;
    }
    if (task.work == Work::attention_on_cpu) {
      return exchange(task, Lane::kCpu, Work::queries_down);
    }
    if (task.lane == Lane::kCpu) return run_below(task);
    EXPECT_EQ(task.lane, Lane::kCompute);
    if (task.sliced > 0) {
      EXPECT_EQ(task.work, Work::expert);
      expect_slice(task, Work::load);
      slice_.done = Work::expert;
      ++slices;
      return;
    }
    ASSERT_EQ(holds_.count(slot), 1u);
    EXPECT_EQ(holds_.at(slot), task.unit);
    EXPECT_TRUE(settled_.at(slot));
    if (task.work == Work::attention) {
      attend(task);
      attended_[task.micro_batch] = task.layer;
    }
    if (task.work == Work::gate) {
      EXPECT_EQ(attended_.at(task.micro_batch), task.layer);
      gated_[task.micro_batch] = task.layer;
    }
    if (task.work == Work::expert) run_expert(task);
    if (task.work == Work::combine) combine(task);
  }

  // A unit is there when all of its bytes are; parts of it come in order.
  void load(const Slot& slot, const Task& task) {
    uint64_t& loaded = loaded_[slot];
    if (task.offset == 0) loaded = 0;
    EXPECT_EQ(task.offset, loaded);
    loaded += task.bytes;
    const uint64_t all = 10000 + static_cast<uint64_t>(task.unit.layer.value);
    EXPECT_LE(loaded, all);
    if (loaded < all) {
      holds_.erase(slot);
      ++parts;
    } else {
      holds_[slot] = task.unit;
    }
  }

  void attend(const Task& task) {
    EXPECT_EQ(combined_[task.micro_batch], task.layer.value);
    if (task.stage >= 0) {
      EXPECT_EQ(staged_.at(task.stage), std::pair(task.layer, task.micro_batch));
    }
  }

  // Inputs and results of attention on the CPU go their way in one buffer, step by step.
  void exchange(const Task& task, Lane lane, Work before) {
    EXPECT_EQ(task.lane, lane);
    const Exchanged& here = buffers_.at(task.buffer);
    EXPECT_EQ(here.task.layer, task.layer);
    EXPECT_EQ(here.task.micro_batch, task.micro_batch);
    EXPECT_EQ(here.done, before);
    buffers_[task.buffer] = {task, task.work};
  }

  // The CPU runs an expert in host memory, on the rows of its layer; its results have to come back
  // before they count.
  void run_below(const Task& task) {
    EXPECT_EQ(task.work, Work::expert_on_cpu);
    EXPECT_EQ(below_.at({task.unit.kind, task.slot}), task.unit);
    EXPECT_EQ(rows_below_, task.layer);
    EXPECT_TRUE(below_way_.emplace(task.unit, Work::expert_on_cpu).second);
    const auto width = static_cast<double>(model_.layer(task.layer).feed_forward.width);
    EXPECT_LE(static_cast<double>(task.sliced), width * kMostSlice);
    ++computed_below;
  }

  // Load, device and CPU name one slice, the one that was loaded.
  void expect_slice(const Task& task, Work done) {
    EXPECT_EQ(slice_.unit, task.unit);
    EXPECT_EQ(slice_.outputs, task.sliced);
    EXPECT_EQ(slice_.done, done);
  }

  // An expert runs after the gate, once for each micro-batch that chose it and for no other layer.
  void run_expert(const Task& task) {
    const Activated& activated = routing_[static_cast<size_t>(task.layer.value)];
    bool useful = false;
    for (size_t k = 0; k < activated.size(); ++k) {
      const auto batch = static_cast<int32_t>(k);
      if (task.micro_batch != kWholeGroup && task.micro_batch != batch) continue;
      EXPECT_EQ(gated_.at(batch), task.layer);
      if (!std::binary_search(activated[k].begin(), activated[k].end(), task.unit.expert)) continue;
      useful = true;
      EXPECT_TRUE(done_[batch].insert(task.unit.expert).second);
    }
    EXPECT_TRUE(useful);
  }

  void combine(const Task& task) {
    const auto& chosen =
        routing_[static_cast<size_t>(task.layer.value)][static_cast<size_t>(task.micro_batch)];
    EXPECT_EQ(done_[task.micro_batch], std::set<ExpertId>(chosen.begin(), chosen.end()));
    done_[task.micro_batch].clear();
    EXPECT_EQ(combined_[task.micro_batch]++, task.layer.value);
  }

  const ModelDescription& model_;
  const Policy& policy_;
  RoutingTable routing_;
  std::map<Slot, WeightUnit> holds_;
  std::map<Slot, WeightUnit> below_;
  std::map<Slot, uint64_t> loaded_;
  std::map<Slot, bool> settled_;
  LayerId rows_below_{-1};
  std::map<WeightUnit, Work> below_way_;  // last step of experts on the CPU
  struct Slice {
    WeightUnit unit{};
    int64_t outputs = 0;
    Work done = Work::load;
  } slice_;
  std::map<int32_t, std::pair<LayerId, int32_t>> staged_;
  struct Exchanged {
    Task task;
    Work done;
  };
  std::map<int32_t, Exchanged> buffers_;
  std::map<int32_t, LayerId> attended_;
  std::map<int32_t, LayerId> gated_;
  std::map<int32_t, std::set<ExpertId>> done_;
  std::map<int32_t, int64_t> combined_;  // layers, by micro-batch
};

TEST(Schedule, TenThousandRandomSchedulesMakeSense) {
  std::mt19937_64 random(1);
  int computed_below = 0;
  int attended_below = 0;
  int parts = 0;
  int slices = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    const ModelDescription model = random_shape(random);
    const Policy policy = random_policy(random, model);
    Residency residency(model, policy);
    const auto schedule = make_schedule(policy.strategy);
    Fragment all;
    Replay replay(model, policy);
    for (int pass = 0; pass < 3; ++pass) {  // each begins with the units that the last one left
      const RoutingTable routing = random_routing(random, model, policy.group.micro_batches);
      RecordingSink sink(routing);
      FragmentBuilder build(policy, residency,
                            random_context(random, model, policy.group.micro_batches));
      run_pass(*schedule, build, sink);
      all = std::move(sink.tasks);
      replay.run(all, routing);
    }
    computed_below += replay.computed_below;
    attended_below += replay.attended_below;
    parts += replay.parts;
    slices += replay.slices;
    if (::testing::Test::HasFailure()) FAIL() << "trial " << trial << "\n" << format_fragment(all);
  }
  EXPECT_GT(computed_below, 500);
  EXPECT_GT(attended_below, 500);
  EXPECT_GT(parts, 100);
  EXPECT_GT(slices, 100);
}

// Equal inputs give equal tasks, whatever time anything took: results depend on which processor
// computes.
TEST(Schedule, HybridIsRepeatable) {
  for (int trial = 0; trial < 200; ++trial) {
    std::array<std::string, 2> printed;
    for (std::string& text : printed) {
      std::mt19937_64 random(static_cast<uint64_t>(trial));
      const ModelDescription model = random_shape(random);
      Policy policy = random_policy(random, model);
      policy.strategy = Strategy::hybrid;
      Residency residency(model, policy);
      const auto schedule = make_schedule(policy.strategy);
      for (int pass = 0; pass < 3; ++pass) {
        const RoutingTable routing = random_routing(random, model, policy.group.micro_batches);
        RecordingSink sink(routing);
        FragmentBuilder build(policy, residency,
                              random_context(random, model, policy.group.micro_batches));
        run_pass(*schedule, build, sink);
        text += format_fragment(sink.tasks);
      }
    }
    ASSERT_EQ(printed[0], printed[1]) << "trial " << trial;
  }
}

// Experts that stay are loaded once, and no more than a few others wait for their use at a time.
TEST(Schedule, KeptExpertsStayAndFewComeAhead) {
  ModelDescription model = shape_of(4, 8, 2);
  Policy policy;
  policy.group.micro_batches = 2;
  policy.layout.compute().slots = {1, 4, 4, 0, 12};
  policy.layout.set_host_slots({1, 4, 4, 0, 32});
  policy.cache.kept_experts = 8;
  policy.cache.loads_ahead = 3;
  std::vector<ExpertId> all;
  for (int64_t e = 0; e < 8; ++e) all.emplace_back(e);
  const RoutingTable routing(4, {all, all});
  Residency residency(model, policy);
  std::map<WeightUnit, int> loads;
  for (int pass = 0; pass < 3; ++pass) {
    RecordingSink sink(routing);
    FragmentBuilder build(policy, residency,
                          {.model = model,
                           .group = std::vector<MicroBatchShape>(2),
                           .facts =
                               [](const WeightUnit&) {
                                 return UnitFacts{1, false, 1};
                               },
                           .hot = [](LayerId) { return std::vector<ExpertId>{ExpertId(1)}; }});
    if (pass == 0) {
      for_each_preloaded(model, policy, build, [&] { sink.submit(build.take()); });
    }
    run_pass(*make_schedule(Strategy::klotski), build, sink);
    for (const Task& task : sink.tasks) {
      if (task.work == Work::load && task.unit.kind == UnitKind::expert) ++loads[task.unit];
    }
  }
  for (const ExpertKey& key : kept_experts(model, policy)) {
    EXPECT_EQ(loads[expert_unit(model, key.layer, key.expert)], 1) << key.layer.value;
  }
  int reloaded = 0;
  for (const auto& [unit, count] : loads) reloaded += count - 1;
  // 8 of 32 experts stay, and the 4 other slots keep all but the experts that pass through.
  EXPECT_LE(reloaded, 2 * 24 + 4);
}

// Equally many experts of every layer are kept, the most chosen ones of each; they are brought
// first.
TEST(Residency, WhatIsChosenMostIsKept) {
  const ModelDescription model = shape_of(3, 4, 2);
  Policy policy;
  policy.cache.kept_experts = 5;
  const auto kept = [&] {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const ExpertKey& key : kept_experts(model, policy)) {
      found.emplace_back(key.layer.value, key.expert.value);
    }
    return found;
  };
  using Kept = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(kept(), (Kept{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}}));
  policy.cache.expert_shares = {{0.1, 0.2, 0.3, 0.4}, {0.4, 0.3, 0.2, 0.1}, {0.2, 0.4, 0.2, 0.2}};
  EXPECT_EQ(kept(), (Kept{{0, 3}, {1, 0}, {2, 1}, {0, 2}, {1, 1}}));
  policy.cache.kept_experts = 12;
  EXPECT_EQ(kept().size(), 12u);
  EXPECT_EQ(kept().back(), (std::pair<int64_t, int64_t>(2, 3))) << "equals as they are numbered";
}

// A later run finds host memory as this one left it, whatever went to the device.
TEST(Residency, EachLiesInOneSlotBelowWhateverIsChosenMost) {
  const ModelDescription model = shape_of(3, 4, 2);
  Policy policy;
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    policy.layout.compute().slots[kind] = std::ssize(units_of(model, static_cast<UnitKind>(kind)));
  }
  policy.layout.set_host_slots(policy.layout.compute().slots);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 5;
  const auto tasks_of = [&](Work work) {
    Residency residency(model, policy);
    FragmentBuilder build(policy, residency,
                          {.model = model,
                           .group = {},
                           .facts =
                               [](const WeightUnit&) {
                                 return UnitFacts{1, false, 1};
                               },
                           .hot = {}});
    std::map<WeightUnit, int32_t> slots;
    for_each_preloaded(model, policy, build, [&] {
      for (const Task& task : build.take()) {
        if (task.work == work && task.unit.kind == UnitKind::expert) {
          EXPECT_TRUE(slots.emplace(task.unit, task.slot).second) << "once";
        }
      }
    });
    return slots;
  };
  const auto below = tasks_of(Work::fetch);
  const auto above = tasks_of(Work::load);
  EXPECT_EQ(below.size(), 12u);
  EXPECT_EQ(above.size(), 5u);
  policy.cache.expert_shares = {{0.1, 0.2, 0.3, 0.4}, {0.4, 0.3, 0.2, 0.1}, {0.2, 0.4, 0.2, 0.2}};
  EXPECT_EQ(tasks_of(Work::fetch), below);
  EXPECT_NE(tasks_of(Work::load), above);
}

TEST(Residency, LentSlotsAreForgottenAndGivenBack) {
  const ModelDescription model = shape_of(1, 8, 2);
  Policy policy;
  policy.layout.compute().slots = {1, 1, 1, 0, 6};
  Residency residency(model, policy);
  const auto bring = [&](int64_t expert) {
    const WeightUnit unit = expert_unit(model, LayerId(0), ExpertId(expert));
    const auto leased = residency.lease(unit);
    residency.release(unit);
    return leased;
  };
  for (int64_t e = 0; e < 6; ++e) EXPECT_TRUE(bring(e)->must_load);
  for (int64_t e = 0; e < 6; ++e) EXPECT_FALSE(bring(e)->must_load);
  residency.lend_slots(2);
  for (int64_t e = 0; e < 4; ++e) EXPECT_FALSE(bring(e)->must_load);
  const auto moved = bring(4);
  EXPECT_TRUE(moved->must_load);
  EXPECT_LT(moved->slot, 4);
  residency.lend_slots(0);
  EXPECT_TRUE(bring(5)->must_load);
  EXPECT_FALSE(bring(4)->must_load);
}

struct Example {
  ModelDescription model = shape_of(2, 4, 1);
  Policy policy;
  // Batch 0 chooses experts 1 and 2, batch 1 experts 1 and 3, in both layers.
  RoutingTable routing = RoutingTable(2, {{ExpertId(1), ExpertId(2)}, {ExpertId(1), ExpertId(3)}});

  explicit Example(Strategy strategy) {
    policy.strategy = strategy;
    policy.group.micro_batches = 2;
    policy.layout.compute().slots = {1, 2, 2, 0, 4};
  }

  Fragment tasks() {
    Residency residency(model, policy);
    ScheduleContext context{.model = model,
                            .group = std::vector<MicroBatchShape>(2),
                            .facts =
                                [](const WeightUnit&) {
                                  return UnitFacts{1024, false};
                                },
                            .hot = [](LayerId) { return std::vector<ExpertId>{ExpertId(2)}; }};
    RecordingSink sink(routing);
    FragmentBuilder build(policy, residency, context);
    run_pass(*make_schedule(policy.strategy), build, sink);
    return sink.tasks;
  }

  // The tasks of layer 0 on a lane, in short.
  std::string layer(Lane lane, bool with_next = false) {
    std::string text;
    for (const Task& task : tasks()) {
      if (task.lane != lane || (task.layer != LayerId(0) && !with_next)) continue;
      if (task.unit.kind == UnitKind::model) continue;
      text += text.empty() ? "" : " ";
      if (task.work == Work::load) {
        text += std::string(unit_kind_name(task.unit.kind)).substr(0, 1);
        if (task.unit.kind == UnitKind::expert) text += std::to_string(task.unit.expert.value);
        continue;
      }
      text += std::string(work_name(task.work)).substr(0, 1);
      if (task.work == Work::expert) text += std::to_string(task.unit.expert.value);
      if (task.micro_batch != kWholeGroup) text += "." + std::to_string(task.micro_batch);
    }
    return text;
  }
};

// The orders of the paper's Figure 4 and Figure 7.
TEST(Schedule, TheOrdersOfThePaper) {
  EXPECT_EQ(Example(Strategy::multi_batch).layer(Lane::kDiskRead).substr(0, 15), "a g e0 e1 e2 e3");
  EXPECT_EQ(Example(Strategy::hot_prefetch).layer(Lane::kDiskRead).substr(0, 12), "a g e2 e1 e3");
  EXPECT_EQ(Example(Strategy::klotski).layer(Lane::kDiskRead).substr(0, 12), "a g e2 e1 e3");
  EXPECT_EQ(Example(Strategy::multi_batch).layer(Lane::kCompute),
            "a.0 a.1 g.0 g.1 e1.0 e2.0 c.0 e1.1 e3.1 c.1");
  EXPECT_EQ(Example(Strategy::hot_prefetch).layer(Lane::kCompute),
            "a.0 a.1 g.0 g.1 e1.0 e2.0 c.0 e1.1 e3.1 c.1");
  EXPECT_EQ(Example(Strategy::klotski).layer(Lane::kCompute), "a.0 a.1 g.0 g.1 e2 e1 e3 c.0 c.1");
}

// MoE-Lightning's Algorithm 1 with three micro-batches, by the tasks of each lane: attention two
// ahead, into the next layer too; a page of the next layer's weights for each micro-batch.
TEST(Schedule, CgoPipesOrder) {
  const ModelDescription model = shape_of(2, 2, 1);
  Policy policy;
  policy.strategy = Strategy::cgopipe;
  policy.division.attend_at_host(true);
  policy.layout.compute().slots = {1, 2, 2, 0, 4};
  policy.layout.set_host_slots({1, 2, 2, 0, 4});
  const RoutingTable routing(2, Activated(3, {ExpertId(0)}));
  Residency residency(model, policy);
  ScheduleContext context{
      .model = model,
      .group = std::vector<MicroBatchShape>(3, {.spilled = true, .rows = 1, .decodes = true}),
      .facts =
          [](const WeightUnit&) {
            return UnitFacts{12288, false, 12288};
          },
      .hot = [](LayerId) { return std::vector<ExpertId>{}; }};
  RecordingSink sink(routing);
  FragmentBuilder build(policy, residency, context);
  run_pass(*make_schedule(policy.strategy), build, sink);
  std::string compute;
  std::string cpu;
  std::string pages;
  for (const Task& task : sink.tasks) {
    const std::string at = std::to_string(task.layer.value) + std::to_string(task.micro_batch);
    if (task.work == Work::project) compute += "pre" + at + " ";
    if (task.work == Work::project_back) compute += "post" + at + " ";
    if (task.lane == Lane::kCpu) cpu += at + " ";
    const bool part = task.work == Work::load && task.layer == LayerId(1);
    if (part) pages += std::to_string(task.bytes / 4096) + " ";
    if (task.work == Work::project_back && task.layer == LayerId(0)) pages += "| ";
  }
  EXPECT_EQ(compute,
            "pre00 pre01 post00 pre02 post01 pre10 post02 pre11 post10 pre12 post11 post12 ");
  EXPECT_EQ(cpu, "00 01 02 10 11 12 ");
  // Attention as a whole; gate and two experts of three times 4 KiB each in three pages of three.
  EXPECT_EQ(pages, "3 3 | 3 | 3 | ");
}

TEST(Schedule, PrintsOneLineATask) {
  const Fragment tasks = Example(Strategy::klotski).tasks();
  const std::string text = format_fragment(tasks);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), tasks.size());
  EXPECT_NE(text.find("disk read  load layer 1 expert 3         1.0 KiB  after routing 1  "
                      "writes expert-slot"),
            std::string::npos)
      << text;
}

std::chrono::nanoseconds simulated(Strategy strategy, std::chrono::nanoseconds load,
                                   std::chrono::nanoseconds compute) {
  Example example(strategy);
  Residency residency(example.model, example.policy);
  Timeline timeline(0);
  Simulation simulation(
      [&](const Task& task) { return task.lane == Lane::kCompute ? compute : load; },
      [&](LayerId layer, int32_t batch) {
        return example.routing[static_cast<size_t>(layer.value)][static_cast<size_t>(batch)];
      },
      timeline);
  ScheduleContext context{.model = example.model,
                          .group = std::vector<MicroBatchShape>(2),
                          .facts =
                              [](const WeightUnit&) {
                                return UnitFacts{1, false};
                              },
                          .hot = [](LayerId) { return std::vector<ExpertId>{ExpertId(2)}; }};
  FragmentBuilder build(example.policy, residency, context);
  run_pass(*make_schedule(strategy), build, simulation);
  simulation.play_out();
  const TimelineTotals totals = timeline.totals();
  EXPECT_EQ(totals.lane(Lane::kCompute).busy % compute, std::chrono::nanoseconds(0));
  return simulation.end();
}

TEST(Simulation, IsAsLongAsItsBusiestLaneWhereTheOtherIsFree) {
  using std::chrono::nanoseconds;
  // Compute alone: 2 embeds and 2 layers of 2 attentions, 2 gates, 3 experts, 2 combines.
  EXPECT_EQ(simulated(Strategy::klotski, nanoseconds(0), nanoseconds(10)), nanoseconds(200));
  // Loads alone: the model, 2 x (attention, gate, 3 experts), and the units that the next pass
  // begins with: all of layer 0 but units that are still there.
  const nanoseconds loads =
      simulated(Strategy::klotski, nanoseconds(10), nanoseconds(0) + nanoseconds(1));
  EXPECT_GE(loads, nanoseconds(110));
}

// Nothing that a pass asks for comes before the pass begins, on whatever lane.
TEST(Simulation, APassBeginsWhenTheOneBeforeHasEnded) {
  using std::chrono::nanoseconds;
  Timeline timeline(10);
  Simulation simulation([](const Task&) { return nanoseconds(10); },
                        [](LayerId, int32_t) { return std::vector<ExpertId>(); }, timeline);
  simulation.begin_pass();
  for (int i = 0; i < 3; ++i) simulation.submit({{.work = Work::embed, .lane = Lane::kCompute}});
  simulation.submit({{.work = Work::load, .lane = Lane::kToDevice}});
  simulation.submit({{.work = Work::load_kv, .lane = Lane::kKvIn}});
  EXPECT_EQ(simulation.end(Lane::kKvIn), nanoseconds(10)) << "beside what is computed";
  simulation.begin_pass();
  simulation.submit({{.work = Work::load_kv, .lane = Lane::kKvIn}});
  EXPECT_EQ(simulation.end(Lane::kKvIn), nanoseconds(40));
}

// Loads in a simulation, by slot: when each is over.
class SimulatedLoads : public ::testing::Test {
 protected:
  using Nanoseconds = std::chrono::nanoseconds;

  static Task load(int32_t slot, float priority, std::vector<Resource> reads = {}) {
    return {.work = Work::load,
            .lane = Lane::kToDevice,
            .slot = slot,
            .bytes = static_cast<uint64_t>(slot),
            .priority = priority,
            .reads = std::move(reads),
            .writes = {{Place::slot, slot, UnitKind::expert}}};
  }
  static Task use(int32_t slot) {
    return {.work = Work::expert, .reads = {{Place::slot, slot, UnitKind::expert}}};
  }
  std::vector<uint64_t> order() {
    simulation.play_out();
    std::vector<uint64_t> slots;
    std::vector<TimelineSpan> spans = timeline.spans();
    std::sort(spans.begin(), spans.end(),
              [](const TimelineSpan& a, const TimelineSpan& b) { return a.start < b.start; });
    for (const TimelineSpan& span : spans) {
      if (span.lane == Lane::kToDevice) slots.push_back(span.bytes);
    }
    return slots;
  }

  Timeline timeline{100};
  Simulation simulation{[](const Task&) { return Nanoseconds(10); },
                        [](LayerId, int32_t) { return std::vector<ExpertId>(); }, timeline};
};

TEST_F(SimulatedLoads, KeepProgramOrderWithOnePriority) {
  simulation.submit({load(3, 0), load(1, 0), load(2, 0)});
  EXPECT_EQ(order(), std::vector<uint64_t>({3, 1, 2}));
  EXPECT_EQ(simulation.end(Lane::kToDevice), Nanoseconds(30));
}

TEST_F(SimulatedLoads, AreOvertakenWhileTheyWait) {
  simulation.submit({load(1, 0), load(2, 0.5), load(3, 0), use(1)});  // 1 is needed: 2 comes first
  simulation.submit({load(4, 1), use(4)});
  EXPECT_EQ(order(), std::vector<uint64_t>({2, 1, 4, 3}));
}

// The load of a higher priority comes from a host slot that is filled at 10 ns: one load goes ahead
// of it, since the link would be idle, and no other.
TEST_F(SimulatedLoads, GoOnWhileAHigherPriorityHasToWait) {
  const Resource below{Place::slot, 0, UnitKind::expert, kHostTier};
  Task fetch{.work = Work::fetch, .lane = Lane::kDiskRead, .writes = {below}};
  simulation.submit({load(1, 0), load(2, 0), fetch, load(3, 1, {below})});
  EXPECT_EQ(order(), std::vector<uint64_t>({1, 3, 2}));
  EXPECT_EQ(simulation.end(Lane::kToDevice), Nanoseconds(30));
}

// Where transfers are slower than computing, each step of the paper's ablation is a gain.
TEST(Simulation, TheAblationsOrder) {
  using std::chrono::nanoseconds;
  const nanoseconds load(100);
  const nanoseconds compute(30);
  const auto whole = simulated(Strategy::multi_batch, load, compute);
  const auto hot = simulated(Strategy::hot_prefetch, load, compute);
  const auto klotski = simulated(Strategy::klotski, load, compute);
  EXPECT_GT(whole, hot);
  EXPECT_GT(hot, klotski);
}

}  // namespace
}  // namespace klotski
