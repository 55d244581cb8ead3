#include "engine/run_plan.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "base/memory_limit.h"
#include "base/process_memory.h"
#include "base/thread_stacks.h"

namespace klotski {

namespace {

// What the program may grow by besides what is planned: stacks, queues, tables, the allocator.
constexpr uint64_t kProgramMargin = 24 * kMiB;

constexpr int64_t kMicroBatch = 16;
constexpr int64_t kMicroBatches = 8;
constexpr int64_t kMicroBatchRows = 512;
constexpr int64_t kStages = 2;
constexpr uint64_t kSpanCopies = 2;  // the timeline's own, and one that is drawn or written

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Stacks of threads a run starts: for the lanes, for the loops of the arithmetic and, where
// io_uring is refused, for reading. Memory holds what they touch of them, limits of address space
// all.
uint64_t stack_bytes(const PipelineOptions& options) {
  const size_t threads = kLaneCount + static_cast<size_t>(usable_cpus()) +
                         static_cast<size_t>(options.disk.queue_depth);
  return threads * kThreadStackBytes;
}

// All that is free, less a sixteenth for what else the machine is doing. What the user allows may
// be more than the machine has free now, never more than the limits of this process and its groups.
uint64_t allowed_bytes(const RunLimits& limits, const PipelineOptions& options, uint64_t resident) {
  if (limits.hypothetical) return *limits.ram_bytes;
  MemoryLeft left = memory_left();
  if (limits.ram_bytes) left.machine.reset();
  for (std::optional<uint64_t>* bound : {&left.address_space, &left.data}) {
    if (*bound) **bound -= std::min(**bound, stack_bytes(options));
  }
  const uint64_t free_bytes = std::min(left.least(), UINT64_MAX / 2);
  return std::min(limits.ram_bytes.value_or(UINT64_MAX), resident + free_bytes - free_bytes / 16);
}

Policy group_policy(const RunLimits& limits, const Workload& workload) {
  Policy policy;
  policy.micro_batch =
      limits.micro_batch.value_or(std::clamp<int64_t>(workload.sequences, 1, kMicroBatch));
  policy.micro_batches = limits.micro_batches.value_or(
      std::clamp<int64_t>(divide_up(workload.sequences, policy.micro_batch), 1, kMicroBatches));
  policy.hot_experts = limits.hot_experts.value_or(0);
  policy.path_length = limits.path_length;
  policy.eviction = limits.eviction;
  policy.precision = limits.precision;
  policy.attention_sinks = limits.attention_sinks;
  policy.attention_window = limits.attention_window;
  policy = with_strategy(std::move(policy), limits.strategy.value_or(Strategy::klotski));
  policy.micro_batch_rows = std::max(
      policy.micro_batch, std::min(kMicroBatchRows, workload.prompt_tokens * policy.micro_batch));
  return policy;
}

int64_t pages_of_sequence(const ModelDescription& model, const Policy& policy, int64_t tokens) {
  const PagedKvCache nothing(model,
                             {.type = kv_type(policy.precision),
                              .streaming = {policy.attention_sinks, policy.attention_window}});
  return nothing.pages_needed(tokens, policy.micro_batch_rows);
}

class MemoryDivision {
 public:
  MemoryDivision(const ModelDescription& model, const UnitLayouts& layouts, const RunLimits& limits,
                 const Workload& workload, const PipelineOptions& options)
      : model_(model),
        layouts_(layouts),
        limits_(limits),
        workload_(workload),
        options_(options),
        resident_(resident_bytes()),
        process_bytes_(resident_ + kProgramMargin + workload.input_bytes +
                       kSpanCopies * static_cast<uint64_t>(options.keep_spans) *
                           sizeof(TimelineSpan)) {}

  // Halves the rows that are computed at once, then the sequences, until the least fits; what does
  // not fit then is refused by plan_memory.
  MemoryPlan plan(Policy& policy) const {
    const MemoryLimits limits{.ram_bytes = allowed_bytes(limits_, options_, resident_),
                              .kv_bytes = limits_.kv_bytes,
                              .expert_slots = limits_.expert_slots};
    while (least_bytes(demand(policy, 0)) > limits.ram_bytes) {
      if (policy.micro_batch_rows > policy.micro_batch) {
        policy.micro_batch_rows = std::max(policy.micro_batch, policy.micro_batch_rows / 2);
      } else if (policy.micro_batches > 1 && !limits_.micro_batches) {
        policy.micro_batches /= 2;
      } else if (policy.micro_batch > 1 && !limits_.micro_batch) {
        policy.micro_batch /= 2;
        policy.micro_batch_rows = policy.micro_batch;
      } else {
        break;
      }
    }
    MemoryPlan plan = plan_memory(demand(policy, 0), limits);
    const uint64_t wanted = kv_wanted(policy);
    const MemoryDemand spilling = demand(policy, kStages * stage_bytes(policy));
    if (!options_.spill_folder.empty() && plan.kv_bytes < wanted &&
        least_bytes(spilling) <= limits.ram_bytes) {
      policy.kv_stages = kStages;
      policy.kv_stage_bytes = stage_bytes(policy);
      policy.kv_sequence_pages = kv_pages(policy);
      plan = plan_memory(spilling, limits);
      policy.kv_spill_bytes = spill_bytes(policy, plan.kv_bytes);
    }
    policy.kv_bytes = plan.kv_bytes;
    policy.slots = plan.slots;
    return plan;
  }

 private:
  int64_t kv_pages(const Policy& policy, int64_t tokens) const {
    return pages_of_sequence(model_, policy, tokens);
  }
  int64_t kv_pages(const Policy& policy) const {
    return kv_pages(policy, workload_.tokens_per_sequence);
  }
  uint64_t page_bytes(const Policy& policy) const {
    return PagedKvCache::page_bytes(model_, kv_type(policy.precision));
  }
  std::vector<uint64_t> spilled_page_bytes(const Policy& policy) const {
    return PagedKvCache::spilled_page_bytes(model_, kv_type(policy.precision));
  }
  uint64_t kv_bytes(const Policy& policy) const {
    return static_cast<uint64_t>(kv_pages(policy)) * page_bytes(policy);
  }
  int64_t sequences_wanted(const Policy& policy) const {
    return std::min(workload_.sequences, policy.group_sequences());
  }
  uint64_t kv_wanted(const Policy& policy) const {
    const int64_t pages = sequences_wanted(policy) * kv_pages(policy, workload_.usual_tokens());
    return std::max(kv_bytes(policy), static_cast<uint64_t>(pages) * page_bytes(policy));
  }

  uint64_t stage_bytes(const Policy& policy) const {
    const std::vector<uint64_t> of_layers = spilled_page_bytes(policy);
    return static_cast<uint64_t>(policy.micro_batch * kv_pages(policy)) *
           *std::max_element(of_layers.begin(), of_layers.end());
  }
  // Room for the sequences that memory does not take.
  uint64_t spill_bytes(const Policy& policy, uint64_t memory_bytes) const {
    const auto in_memory = static_cast<int64_t>(memory_bytes / kv_bytes(policy));
    uint64_t page = 0;
    for (const uint64_t bytes : spilled_page_bytes(policy)) page += bytes;
    return static_cast<uint64_t>((sequences_wanted(policy) - in_memory) * kv_pages(policy)) * page;
  }

  MemoryDemand demand(const Policy& policy, uint64_t stage_bytes) const {
    const int64_t logit_rows = std::max(policy.micro_batch, workload_.logit_rows);
    MemoryDemand demand{.process_bytes = process_bytes_,
                        .activation_bytes = activation_bytes(model_, policy, logit_rows),
                        .units = {},
                        .kv_least_bytes = kv_bytes(policy),
                        .kv_wanted_bytes = kv_wanted(policy),
                        .kv_stage_bytes = stage_bytes};
    if (stage_bytes > 0) demand.kv_least_bytes = 0;
    for (size_t k = 0; k < kUnitKinds; ++k) {
      const auto kind = static_cast<UnitKind>(k);
      demand.units[k] = {.units = layouts_.units(kind),
                         .least = std::min<int64_t>(1, layouts_.units(kind)),
                         .buffer_bytes = layouts_.buffer_bytes(kind)};
    }
    return demand;
  }

  const ModelDescription& model_;
  const UnitLayouts& layouts_;
  const RunLimits& limits_;
  const Workload& workload_;
  const PipelineOptions& options_;
  uint64_t resident_;
  uint64_t process_bytes_;
};

}  // namespace

uint64_t ram_limit(const RunLimits& limits, const PipelineOptions& options) {
  return allowed_bytes(limits, options, resident_bytes());
}

RunPlan plan_run(const ModelDescription& model, const UnitLayouts& layouts, const RunLimits& limits,
                 const Workload& workload, const PipelineOptions& options) {
  RunPlan plan{.policy = group_policy(limits, workload), .memory = {}};
  plan.memory = MemoryDivision(model, layouts, limits, workload, options).plan(plan.policy);
  return plan;
}

int64_t sequences_at_once(const ModelDescription& model, const RunPlan& plan,
                          const Workload& workload) {
  const Policy& policy = plan.policy;
  if (policy.kv_spill_bytes > 0) return policy.group_sequences();
  const auto pages =
      static_cast<uint64_t>(pages_of_sequence(model, policy, workload.usual_tokens()));
  const uint64_t bytes = pages * PagedKvCache::page_bytes(model, kv_type(policy.precision));
  return std::clamp<int64_t>(static_cast<int64_t>(policy.kv_bytes / bytes), 1,
                             policy.group_sequences());
}

}  // namespace klotski
