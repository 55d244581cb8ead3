#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/pipeline.h"
#include "memory/tier.h"
#include "planner/memory_plan.h"

namespace klotski {

// What the user fixes; the rest is chosen.
struct RunLimits {
  Strategy strategy = Strategy::klotski;
  Precision precision = Precision::bf16;
  std::optional<uint64_t> ram_bytes{};  // default: what is free within all limits, less a margin
  std::optional<uint64_t> kv_bytes{};
  std::optional<int64_t> expert_slots{};
  std::optional<int64_t> micro_batch{};
  std::optional<int64_t> micro_batches{};
  std::optional<int64_t> hot_experts{};
  int path_length = 1;  // of the correlation table
  std::string eviction = "furthest";
  int64_t attention_sinks = 0;  // lossy: see Policy
  int64_t attention_window = 0;
};

// What is to be computed, as far as memory is concerned.
struct Workload {
  int64_t sequences = 1;            // that could run together
  int64_t tokens_per_sequence = 0;  // prompt and continuation, at most
  int64_t prompt_tokens = 0;        // of the longest prompt
  int64_t logit_rows = 0;           // of one micro-batch; 0: one a sequence
  uint64_t input_bytes = 0;         // that the caller holds in memory besides
  int64_t typical_tokens = 0;       // of a sequence, where most are shorter; 0: all are as long
};

// A model laid out over the tiers by a plan, ready to run. No weight has been read when it is made:
// each is read when the pipeline first wants it.
class PreparedModel {
 public:
  // Refuses (does_not_fit) what cannot run within the limits. The references must live longer.
  PreparedModel(const ModelDescription& model, const Checkpoint& checkpoint, const Ops& ops,
                const RunLimits& limits, const Workload& workload,
                const PipelineOptions& options = {});

  const MemoryPlan& plan() const { return plan_; }
  const Policy& policy() const { return policy_; }
  const Tier& compute_tier() const { return *compute_tier_; }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  UnitLayouts layouts_;
  Policy policy_;
  MemoryPlan plan_;
  std::unique_ptr<Tier> compute_tier_;
  std::vector<Reservation> reservations_;  // of what is not taken as one piece of memory
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace klotski
