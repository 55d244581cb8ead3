#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/unit_layout.h"
#include "planner/machine_memory.h"
#include "planner/memory_plan.h"
#include "schedule/policy.h"

namespace klotski {

// The user's limits; everything else is chosen.
struct RunLimits {
  std::optional<Strategy> strategy{};  // default: auto, the fastest
  Precision precision = Precision::bf16;
  std::optional<uint64_t> ram_bytes{};   // default: free memory within all limits, less a margin
  std::optional<uint64_t> vram_bytes{};  // a device's; default: its free memory, less a margin
  bool hypothetical = false;             // both limits count, whatever this machine has
  std::optional<uint64_t> kv_bytes{};
  std::optional<int64_t> expert_slots{};
  std::optional<int64_t> micro_batch{};
  std::optional<int64_t> micro_batches{};
  std::optional<int64_t> hot_experts{};
  int64_t draft_tokens = 0;             // see GroupShape
  std::optional<bool> cpu_attention{};  // for decoding rows, with a device; default: the faster
  int path_length = 1;                  // length of the correlation table's paths
  std::optional<std::string> eviction{};
  int64_t attention_sinks = 0;  // lossy: see Policy
  int64_t attention_window = 0;
};

// The work, as far as memory is concerned.
struct Workload {
  int64_t sequences = 1;            // sequences that could run together
  int64_t tokens_per_sequence = 0;  // prompt and continuation, at most
  int64_t prompt_tokens = 0;        // tokens of the longest prompt
  int64_t logit_rows = 0;           // rows of one micro-batch; 0: one a sequence
  uint64_t input_bytes = 0;         // bytes that the caller holds in memory besides
  int64_t typical_tokens = 0;       // tokens of a usual sequence, where most are shorter; 0: all
                                    // are as long
  int64_t generated_tokens = 1;     // in a usual sequence; predictions depend on it

  int64_t usual_tokens() const { return typical_tokens > 0 ? typical_tokens : tokens_per_sequence; }
};

// How the work is divided, and who gets how much memory for it.
struct RunPlan {
  Policy policy;
  MemoryPlan memory;                 // the compute tier
  std::optional<MemoryPlan> host{};  // the program's memory, where that is a device's
};

// Inputs of a plan of memory besides the limits and the work. The references must live longer.
struct RunInputs {
  const ModelDescription& model;
  const UnitLayouts& layouts;
  const Processor& processor;      // the compute tier's processor
  const Processor* cpu = nullptr;  // the CPU's processor, where it may compute for a device
  MachineMemory memory{};
  uint64_t span_bytes = 0;    // bytes of the spans that a timeline keeps
  uint64_t source_bytes = 0;  // bytes of RAM that the source of weights takes for itself
  bool may_spill = false;     // keys and values may lie in a file
};

// Bytes that the user allows, or the free bytes less a sixteenth, within every limit of the process
// or of the device.
uint64_t ram_limit(const RunLimits& limits, const MachineMemory& memory);
uint64_t vram_limit(const RunLimits& limits, const DeviceMemoryState& device);

// Gives a group as large as the work and the limits allow its memory, and makes it smaller where
// that is not enough; refuses (does_not_fit) work that cannot run within the limits. Touches no
// weight.
RunPlan plan_run(const RunInputs& inputs, const RunLimits& limits, const Workload& workload);

// Sequences of the usual length for whose keys and values a plan has room.
int64_t sequences_at_once(const ModelDescription& model, const RunPlan& plan,
                          const Workload& workload);

}  // namespace klotski
