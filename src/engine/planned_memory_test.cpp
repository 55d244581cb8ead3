// Plans of memory against what they are made of: each thing that takes memory makes a plan larger
// by as much.

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "engine/testing/models.h"
#include "planner/run_plan.h"

namespace klotski {
namespace {

class PlannedMemory : public ::testing::Test {
 protected:
  RunPlan plan(const Workload& workload) const {
    return plan_run({.model = test_.description,
                     .layouts = layouts_,
                     .processor = reference_processor(),
                     .cpu = &cpu_processor(),
                     .memory = memory_,
                     .span_bytes = span_bytes_,
                     .source_bytes = source_bytes_},
                    limits_, workload);
  }
  uint64_t program_bytes(const Workload& workload) const {
    return plan(workload).memory.process_bytes;
  }
  // Memory of a device that holds everything, unless a limit is set.
  void on_device() {
    memory_.device = {.own_bytes = 100 * kMiB,
                      .own_bytes_at_start = 100 * kMiB,
                      .free_bytes = kGiB,
                      .processor_bytes = 0};
    limits_.vram_bytes = kGiB;
  }

  const TestModel test_{test_model("mixtral")};
  const UnitLayouts layouts_{test_.description, test_.checkpoint};
  MachineMemory memory_{.resident_bytes = 50 * kMiB};
  RunLimits limits_{.ram_bytes = kGiB, .hypothetical = true};
  uint64_t span_bytes_ = 0;
  uint64_t source_bytes_ = 0;
  const Workload work_{.sequences = 8, .tokens_per_sequence = 48, .prompt_tokens = 32};
};

TEST_F(PlannedMemory, GrowsWithInputsSpansAndTheSourceOfWeights) {
  const uint64_t before = program_bytes(work_);
  Workload with_inputs = work_;
  with_inputs.input_bytes = 3 * kMiB;
  EXPECT_EQ(program_bytes(with_inputs), before + 3 * kMiB);
  source_bytes_ = 5 * kMiB;
  EXPECT_EQ(program_bytes(work_), before + 5 * kMiB);
  span_bytes_ = kMiB;
  EXPECT_GT(program_bytes(work_), before + 6 * kMiB) << "they are copied to be drawn";
}

TEST_F(PlannedMemory, WeightsThatARunBeforeLeftAreNotCountedTwice) {
  const uint64_t before = program_bytes(work_);
  memory_.held_weight_bytes = 20 * kMiB;
  EXPECT_EQ(program_bytes(work_), before - 20 * kMiB);
}

TEST_F(PlannedMemory, HasTheMemoryOfADevicesOperations) {
  on_device();
  const uint64_t before = plan(work_).memory.activation_bytes;
  memory_.device->processor_bytes = 7 * kMiB;
  EXPECT_EQ(plan(work_).memory.activation_bytes, before + 7 * kMiB);
}

// A CPU that computes experts for a device needs memory to compute in.
TEST_F(PlannedMemory, HasTheScratchOfACpuThatShares) {
  on_device();
  limits_.strategy = Strategy::klotski;
  const uint64_t alone = plan(work_).host->activation_bytes;
  limits_.strategy = Strategy::hybrid;
  const RunPlan shared = plan(work_);
  ASSERT_GT(shared.policy.division.shared_rows, 0);
  EXPECT_GT(shared.host->activation_bytes, alone);
}

TEST_F(PlannedMemory, SequencesInMemoryAndInTheFileRunTogether) {
  RunPlan planned = plan(work_);
  const ModelDescription& model = test_.description;
  const DType type = kv_type(planned.policy.precision);
  const auto pages = static_cast<uint64_t>(PagedKvCache::pages_for(work_.tokens_per_sequence));
  uint64_t spilled = 0;
  for (const uint64_t bytes : PagedKvCache::spilled_page_bytes(model, type)) {
    spilled += pages * bytes;
  }
  planned.policy.group.micro_batch = 8;
  planned.policy.layout.compute().kv_bytes = 2 * pages * PagedKvCache::page_bytes(model, type);
  planned.policy.layout.compute().kv_spill_bytes = 3 * spilled;
  EXPECT_EQ(sequences_at_once(model, planned, work_), 5);
}

// A sixteenth of the free memory is for other programs; stacks take address space, of which limits
// have less.
TEST(RamLimit, LeavesSomeForOthersAndForStacks) {
  MachineMemory memory{.resident_bytes = 100 * kMiB, .stack_bytes = 300 * kMiB};
  memory.left.machine = 1600 * kMiB;
  EXPECT_EQ(ram_limit({}, memory), 1600 * kMiB);
  memory.left.address_space = 1100 * kMiB;
  EXPECT_EQ(ram_limit({}, memory), 100 * kMiB + 750 * kMiB);
  EXPECT_EQ(ram_limit({.ram_bytes = 200 * kMiB}, memory), 200 * kMiB);
}

}  // namespace
}  // namespace klotski
