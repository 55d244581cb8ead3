#pragma once

// Helpers of the tests of schedules: tasks, models of random shape without weights, and routing for
// them.

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "schedule/pass.h"

namespace klotski {

inline Task task_of(Work work, Lane lane, std::vector<Resource> reads,
                    std::vector<Resource> writes) {
  Task made;
  made.work = work;
  made.lane = lane;
  made.reads = std::move(reads);
  made.writes = std::move(writes);
  return made;
}

inline ModelDescription shape_of(int64_t layers, int64_t experts, int top_k) {
  ModelDescription model;
  model.hidden = 8;
  for (int64_t i = 0; i < layers; ++i) {
    Layer layer;
    layer.feed_forward.experts = experts;
    layer.feed_forward.routed = true;
    layer.feed_forward.width = 1024;
    layer.feed_forward.router.top_k = top_k;
    model.layers.push_back(layer);
  }
  return model;
}

// A random number in [least, most].
inline int64_t between(std::mt19937_64& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

inline constexpr int64_t kMostExperts = 8;  // experts of a layer

inline ModelDescription random_shape(std::mt19937_64& random) {
  const int64_t experts = between(random, 2, kMostExperts);
  ModelDescription model =
      shape_of(between(random, 1, 4), experts,
               static_cast<int>(between(random, 1, std::min<int64_t>(experts, 3))));
  for (Layer& layer : model.layers) {
    if (between(random, 0, 4) > 0) continue;
    layer.feed_forward.routed = false;
    layer.feed_forward.experts = 1;
  }
  return model;
}

// Costs of experts that the CPU computes about as fast as the link brings them.
inline ExpertCosts random_costs(std::mt19937_64& random) {
  const auto curve = [&](int64_t most) {
    const auto seconds = static_cast<double>(between(random, 1, most));
    return Curve({1, 100}, {seconds, 3 * seconds});
  };
  return {.device = curve(2),
          .cpu = curve(20),
          .link = static_cast<double>(between(random, 1, 20)),
          .down = curve(2),
          .up = curve(2),
          .between = static_cast<double>(between(random, 0, 20)),
          .kv = static_cast<double>(between(random, 0, 20)),
          .slices = between(random, 0, 1) == 1};
}

inline Policy random_policy(std::mt19937_64& random, const ModelDescription& model) {
  Policy policy;
  policy.strategy =
      static_cast<Strategy>(between(random, 0, static_cast<int64_t>(kStrategies) - 1));
  policy.group.micro_batches =
      properties_of(policy.strategy).one_micro_batch ? 1 : between(random, 1, 4);
  policy.layout.kv_stages = between(random, 2, 3);
  const std::span<const std::string_view> rules = eviction_rule_names();
  policy.cache.eviction = rules[static_cast<size_t>(between(random, 0, std::ssize(rules) - 1))];
  const bool below = between(random, 0, 1) == 1;
  const bool two_layers =
      properties_of(policy.strategy).double_buffers_layers && between(random, 0, 1) == 1;
  std::array<int64_t, kUnitKinds> host_slots{};
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    int64_t& slots = policy.layout.compute().slots[kind];
    const auto units = static_cast<int64_t>(units_of(model, static_cast<UnitKind>(kind)).size());
    slots = units == 0 ? 0 : between(random, 1, units);
    if (two_layers && units > 0) {
      const int64_t of_layer = kind == index_of(UnitKind::expert) ? kMostExperts : 1;
      slots = between(random, std::min(units, 2 * of_layer), units);
    }
    if (below && units > 0) host_slots[kind] = between(random, 1, units);
  }
  if (below) policy.layout.set_host_slots(host_slots);
  policy.cache.loads_ahead = between(random, 0, 4);
  policy.cache.kept_experts =
      between(random, 0, policy.layout.compute().slots[index_of(UnitKind::expert)]);
  if (between(random, 0, 1) == 1) {
    for (const Layer& layer : model.layers) {
      std::vector<double>& shares = policy.cache.expert_shares.emplace_back();
      for (int64_t e = 0; e < layer.feed_forward.experts; ++e) {
        shares.push_back(static_cast<double>(between(random, 0, 3)));
      }
    }
  }
  policy.division.attend_at_host(below && between(random, 0, 1) == 1);
  if (below && properties_of(policy.strategy).divides_experts) {
    policy.division.shared_rows = between(random, 0, 60);
    policy.division.costs = {{random_costs(random)},
                             std::vector<int>(model.layers.size(), 0),
                             static_cast<double>(between(random, 0, 20))};
    policy.division.slices_experts = policy.division.costs.kinds[0].slices;
  }
  return policy;
}

// Choices of all layers and micro-batches: [layer][micro-batch], ascending, at least one.
using RoutingTable = std::vector<Activated>;

inline RoutingTable random_routing(std::mt19937_64& random, const ModelDescription& model,
                                   int64_t micro_batches) {
  RoutingTable table;
  for (const Layer& layer : model.layers) {
    Activated& activated = table.emplace_back();
    for (int64_t k = 0; k < micro_batches; ++k) {
      std::vector<ExpertId>& chosen = activated.emplace_back();
      for (int64_t e = 0; e < layer.feed_forward.experts; ++e) {
        if (between(random, 0, 1) == 1) chosen.push_back(ExpertId(e));
      }
      if (chosen.empty()) {
        chosen.push_back(ExpertId(between(random, 0, layer.feed_forward.experts - 1)));
      }
    }
  }
  return table;
}

inline ScheduleContext random_context(std::mt19937_64& random, const ModelDescription& model,
                                      int64_t micro_batches) {
  ScheduleContext context{
      .model = model,
      .group = {},
      .facts =
          [](const WeightUnit& unit) {
            const uint64_t bytes = 10000 + static_cast<uint64_t>(unit.layer.value);
            return UnitFacts{bytes, unit.expert.value == 1, bytes};
          },
      .hot =
          [&model, &random](LayerId layer) {
            std::vector<ExpertId> hot;
            const FeedForward& part = model.layer(layer).feed_forward;
            for (int64_t e = 0; e < part.experts; ++e) {
              if (between(random, 0, 2) == 0) hot.push_back(ExpertId(e));
            }
            return hot;
          },
      .coming =
          [&model, &random] {
            std::vector<LayerProbabilities> coming;
            const int64_t first = between(random, 0, model.layer_count() - 1);
            for (int64_t i = 0, end = between(random, 0, 3); i < end; ++i) {
              const LayerId layer((first + i) % model.layer_count());
              LayerProbabilities expected{layer, {}};
              for (int64_t e = 0; e < model.layer(layer).feed_forward.experts; ++e) {
                expected.probability.push_back(static_cast<double>(between(random, 0, 10)) / 10);
              }
              coming.push_back(std::move(expected));
            }
            return coming;
          },
      .rows = [](ExpertId expert) { return static_cast<double>(1 + expert.value % 3); }};
  const bool decoding = between(random, 0, 1) == 1;  // all of them
  for (int64_t k = 0; k < micro_batches; ++k) {
    context.group.push_back({.spilled = decoding || between(random, 0, 1) == 1,
                             .rows = between(random, 1, 20),
                             .decodes = decoding || between(random, 0, 1) == 1});
  }
  return context;
}

// A sink that keeps the tasks it is given.
class RecordingSink : public TaskSink {
 public:
  explicit RecordingSink(const RoutingTable& routing) : routing_(routing) {}
  void submit(Fragment fragment) override {
    for (Task& task : fragment) tasks.push_back(std::move(task));
  }
  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    return routing_[static_cast<size_t>(layer.value)][static_cast<size_t>(micro_batch)];
  }
  // The tasks of a guess that has not begun never run, unless another task reads what they bring:
  // a load that has begun needs the fetch into its source.
  bool withdraw(const WeightUnit& unit, TierId tier) override {
    if (guesses_have_begun.value_or(random_() % 2 == 0)) return false;
    const auto brings = [&](const Task& task) {
      return is_guess(task) && task.unit == unit && task.tier == tier;
    };
    const auto last = std::find_if(tasks.rbegin(), tasks.rend(), [&](const Task& task) {
      return brings(task) && task.work != Work::settle;
    });
    if (last == tasks.rend()) return false;
    const auto first = last.base() - 1;
    const Resource filled = first->writes.front();
    const bool needed = std::any_of(first + 1, tasks.end(), [&](const Task& task) {
      return !brings(task) && std::count(task.reads.begin(), task.reads.end(), filled) > 0;
    });
    if (needed) return false;
    tasks.erase(std::remove_if(first, tasks.end(), brings), tasks.end());
    return true;
  }
  Fragment tasks;
  std::optional<bool> guesses_have_begun{};  // none: one in two has

 private:
  const RoutingTable& routing_;
  std::mt19937 random_{1};
};

}  // namespace klotski
