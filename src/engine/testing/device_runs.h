#pragma once

// Shared by tests of the pipeline over a device's memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "base/process_memory.h"
#include "base/testing.h"
#include "device/testing_streams.h"
#include "engine/testing/pipeline_runs.h"
#include "kernels/cuda/free_list.h"
#include "kernels/testing.h"
#include "kernels/testing_streams.h"
#include "schedule/testing.h"

namespace klotski {

// The memory that a plan has for the operations of a device.
class ArenaMemory : public HostMemory {
 public:
  std::byte* take(uint64_t bytes) override { return memory_->take(bytes); }
  void give_back(std::byte* memory, uint64_t bytes) override { memory_->give_back(memory, bytes); }
  void lend(std::span<std::byte> memory) override { memory_->lend(memory); }
  void use_arena(std::span<std::byte> arena) override {
    memory_.reset();
    if (!arena.empty()) memory_.emplace(arena);
  }

 private:
  std::optional<cuda::WorkingMemory> memory_;
};

// More memory than any test needs, besides the program's own, of which sanitizers keep gigabytes.
inline uint64_t roomy_ram() { return resident_bytes() + 2 * kGiB; }

// Runs of a model, the parameter, on a target under random limits and with random policies.
class RandomRuns : public ::testing::TestWithParam<const char*> {
 protected:
  explicit RandomRuns(const Target& target)
      : test_(test_model(GetParam())), plain_(plain_model(GetParam())), target_(target) {}

  RunPlan plan(const RunLimits& limits, const Workload& workload) const {
    const UnitLayouts layouts(test_.description, test_.checkpoint);
    return plan_run(run_inputs(test_.description, layouts, target_, options_), limits, workload);
  }

  // Number of trials: a third where each takes long, as those of the bundled model and those under
  // a sanitizer (KLOTSKI_TRIALS) do.
  static int trials(int most) {
    const std::string_view name = GetParam();
    const bool few = name == kCompact || name == kDrill || klotski::trials(most) < most;
    return few ? most / 3 : most;
  }

  // Fewer slots than the plan has room for: the models of the tests are small.
  void take_slots_away(RunPlan& plan) {
    for (size_t kind = 0; kind < kUnitKinds; ++kind) {
      int64_t& above = plan.policy.layout.compute().slots[kind];
      int64_t& host = plan.policy.layout.find(kHostTier)->slots[kind];
      if (above == 0) continue;
      above = between(random_, 1, above);
      const auto units =
          static_cast<int64_t>(units_of(test_.description, static_cast<UnitKind>(kind)).size());
      host = between(random_, 1, units);
    }
    lend_slots(plan.policy);
    plan.memory.slots = plan.policy.layout.compute().slots;
    plan.host->slots = plan.policy.layout.host()->slots;
  }

  // Lends the last slots to groups of many rows, where these are enough: the rows lie in them, and
  // operations compute in the rest.
  void lend_slots(Policy& policy) {
    const int64_t slots = policy.layout.compute().slots[index_of(UnitKind::expert)];
    if (slots == 0) return;
    const UnitLayouts layouts(test_.description, test_.checkpoint);
    const uint64_t slot = DeviceMemory::rounded(layouts.packed_bytes(UnitKind::expert));
    const uint64_t rows = group_row_bytes(test_.description, policy, policy.group.rows());
    const auto least = static_cast<int64_t>((rows + slot - 1) / slot);
    policy.cache.kept_experts = between(random_, 0, slots);
    if (least >= slots) return;
    policy.layout.lent_slots = between(random_, least, slots - 1);
    policy.layout.rows_in_place = between(random_, 0, 20);
    ++lending_;
  }

  // Costs that let both compute, of groups as large as there is memory for, or smaller.
  void share_experts(Policy& policy, bool slices = false) {
    if (policy.division.shared_rows == 0) return;
    policy.division.costs = {{random_costs(random_)},
                             std::vector<int>(test_.description.layers.size(), 0)};
    policy.division.costs.kinds[0].slices = slices && policy.division.slices_experts;
    policy.division.shared_rows = between(random_, 1, policy.division.shared_rows);
  }

  // Logits of texts that run by a plan with random slots and a random division of work, within the
  // plan's limit.
  std::vector<Logits> run_by_random_plan(const Texts& texts, const RunLimits& limits) {
    RunPlan chosen = plan(limits, texts.workload());
    take_slots_away(chosen);
    share_experts(chosen.policy);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    if (random_() % 2 == 0) prepared.pipeline().preload([](uint64_t, uint64_t) {});
    std::vector<Logits> found = run_pipeline(prepared.pipeline(), texts, random_);
    EXPECT_LE(prepared.compute_tier().peak_bytes(), chosen.memory.limit_bytes);
    return found;
  }

  RunLimits random_limits() {
    RunLimits limits;
    limits.strategy = static_cast<Strategy>(between(random_, 0, kStrategies - 1));
    limits.micro_batch = between(random_, 1, 4);
    limits.micro_batches = between(random_, 1, 4);
    limits.hot_experts = between(random_, 1, 4);
    limits.eviction = std::array{"furthest", "lru", "lfu"}[random_() % 3];
    limits.precision = precisions_[random_() % precisions_.size()];
    options_.executor.stress_delay = std::chrono::microseconds(20);
    options_.executor.stress_seed.reset();
    if (random_() % 2 == 0) options_.executor.stress_seed = random_();
    return limits;
  }

  // Random limits under which the CPU often shares experts and attention, or keys and values do not
  // all lie on the device.
  RunLimits random_division(const Texts& texts) {
    RunLimits limits = random_limits();
    if (random_() % 3 == 0) limits.strategy = Strategy::hybrid;
    if (random_() % 3 == 0) limits.cpu_attention = true;
    if (!limits.cpu_attention && random_() % 3 == 0) {
      limits.kv_bytes = (1 + random_() % 2) *
                        sequence_cache_bytes(test_.description, limits.precision, texts.longest());
    }
    return limits;
  }

  const TestModel test_;
  const TestModel plain_;  // the numbers of test_ in a format that every file may have
  std::mt19937_64 random_{41};
  int lending_ = 0;
  std::vector<Precision> precisions_ = {Precision::f32, Precision::bf16};
  Target target_;
  PipelineOptions options_;
};

// A device that is made of host memory.
class HostMachine {
 protected:
  using HostDevice = ::klotski::testing::HostDevice;
  using StreamDevice = ::klotski::testing::StreamDevice;
  using StreamProcessor = ::klotski::testing::StreamProcessor;

  // In streams: the device works beside the program, with random delays.
  explicit HostMachine(bool in_streams)
      : ops_(in_streams ? std::unique_ptr<Processor>(std::make_unique<StreamProcessor>(streams_))
                        : std::make_unique<ReferenceProcessor>(std::make_unique<ArenaMemory>())),
        machine_{.ops = *ops_,
                 .device = in_streams ? static_cast<Device*>(&streams_) : &device_,
                 .cpu = &reference_processor(),
                 .device_own_bytes = device_.own_bytes()} {}

  HostDevice device_{{.bytes = kGiB, .own_bytes = 100 * kMiB, .pin_bytes = kMiB}};
  StreamDevice streams_{device_, 17};
  const std::unique_ptr<const Processor> ops_;
  const Target machine_;
};

// Random runs on such a device.
class DeviceRuns : protected HostMachine, public RandomRuns {
 protected:
  explicit DeviceRuns(bool in_streams = false) : HostMachine(in_streams), RandomRuns(machine_) {}

  void equals_resident_run(const Texts& texts, const RunLimits& limits) {
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    ASSERT_EQ(run_by_random_plan(texts, limits), expected);
  }
};

}  // namespace klotski
