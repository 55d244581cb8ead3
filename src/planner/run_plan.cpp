#include "planner/run_plan.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "kv/paged_cache.h"
#include "memory/alignment.h"
#include "memory/device_memory.h"
#include "model/counts.h"
#include "model/rope.h"
#include "schedule/group_bytes.h"
#include "schedule/task.h"

namespace klotski {

namespace {

// Bytes that the program may grow by beyond its plan: stacks, queues, tables, the allocator.
constexpr uint64_t kProgramMargin = 24 * kMiB;

constexpr int64_t kMicroBatch = 16;
constexpr int64_t kMicroBatches = 8;
constexpr int64_t kMicroBatchRows = 512;
constexpr int64_t kDeviceMicroBatchRows = 4096;
constexpr int64_t kDeviceDecodeBatch = 256;  // sequences: the memory of their logits stays small

// Bytes of a device that the driver and the products' library take while they are first used, and
// the least they may still take where they have taken more than that.
constexpr uint64_t kDeviceMargin = 192 * kMiB;
constexpr uint64_t kLeastDeviceMargin = 48 * kMiB;
constexpr uint64_t kPinnedPerTableByte =
    512;  // bytes of pinned memory for a byte of the device's tables
// Rows of a group whose experts the CPU may share, where the group has fewer sequences: with many
// more rows the CPU takes longer for an expert than any link.
constexpr int64_t kSharedRows = 1024;
constexpr int64_t kLoadsAhead = 3;             // one is used, one arrives, one is waited for next
constexpr uint64_t kOpsSlack = 16;             // one part in this many, for gaps between pieces
constexpr uint64_t kCopyBuffers = 192 * kMiB;  // pinned, on the way to a device and back
constexpr int64_t kLeastBelow = 4;             // slots, so that disk and link work at once
constexpr int64_t kStages = 2;
constexpr uint64_t kSpanCopies = 2;  // the timeline's own, and one that is drawn or written

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows that a micro-batch must have at least: an encoder takes its input in one piece.
int64_t least_rows(const ModelDescription& model, const Workload& workload) {
  return model.encoder ? workload.prompt_tokens : 1;
}

// Drafted tokens that passes of this model may verify. None where positions that were computed
// cannot be taken back or would differ: where recurrent states are kept, keys depend on the length
// of their sequence, or the rows of an encoder's sequence on each other.
int64_t draft_tokens(const ModelDescription& model, const RunLimits& limits) {
  const bool can_be_taken_back = SequenceStates::sequence_bytes(model) == 0 && !model.encoder &&
                                 !frequencies_depend_on_length(model.rope);
  return can_be_taken_back ? limits.draft_tokens : 0;
}

Policy group_policy(const ModelDescription& model, const RunLimits& limits,
                    const Workload& workload, bool device) {
  Policy policy;
  policy.group.micro_batch =
      limits.micro_batch.value_or(std::clamp<int64_t>(workload.sequences, 1, kMicroBatch));
  policy.group.micro_batches = limits.micro_batches.value_or(std::clamp<int64_t>(
      divide_up(workload.sequences, policy.group.micro_batch), 1, kMicroBatches));
  if (device) policy.group.decode_batch = kDeviceDecodeBatch;
  policy.group.draft_tokens = draft_tokens(model, limits);
  policy.cache.hot_experts = limits.hot_experts.value_or(0);
  policy.cache.path_length = limits.path_length;
  policy.precision = limits.precision;
  policy.visible.sinks = limits.attention_sinks;
  policy.visible.window = limits.attention_window;
  policy = with_strategy(std::move(policy), limits.strategy.value_or(Strategy::klotski));
  policy.cache.eviction = limits.eviction.value_or(policy.cache.eviction);
  policy.group.micro_batch_rows =
      std::max(policy.group.micro_batch * (1 + policy.group.draft_tokens),
               std::min(device ? kDeviceMicroBatchRows : kMicroBatchRows,
                        workload.prompt_tokens * policy.group.micro_batch));
  policy.group.micro_batch_rows =
      std::max(policy.group.micro_batch_rows, least_rows(model, workload));
  return policy;
}

int64_t pages_of_sequence(const ModelDescription& model, const Policy& policy, int64_t tokens) {
  const PagedKvCache nothing(model, {.type = kv_type(policy.precision),
                                     .streaming = {policy.visible.sinks, policy.visible.window}});
  return nothing.pages_needed(tokens, policy.group.micro_batch_rows);
}

class MemoryDivision {
 public:
  MemoryDivision(const RunInputs& inputs, const RunLimits& limits, const Workload& workload)
      : model_(inputs.model),
        layouts_(inputs.layouts),
        inputs_(inputs),
        device_(inputs.memory.device),
        limits_(limits),
        workload_(workload),
        ram_bytes_(ram_limit(limits, inputs.memory)),
        process_bytes_(inputs.memory.resident_bytes -
                       std::min(inputs.memory.resident_bytes, inputs.memory.held_weight_bytes) +
                       kProgramMargin + workload.input_bytes + kSpanCopies * inputs.span_bytes +
                       inputs.source_bytes) {}

  RunPlan plan(Policy policy) const {
    const MemoryLimits limits = compute_limits();
    if (device_ && inputs_.cpu) {
      // The CPU attends to one cache a layer: not to an encoder's output besides.
      policy.division.attend_at_host(!model_.encoder &&
                                     (limits_.cpu_attention.value_or(false) ||
                                      properties_of(policy.strategy).needs_cpu_attention));
      if (properties_of(policy.strategy).divides_experts) {
        policy.division.shared_rows = std::max(policy.group.sequences(), kSharedRows);
        // A slice is used where the costs say that it is worth it.
        policy.division.slices_experts = layouts_.experts_can_be_cut();
      }
    }
    policy = that_fits(policy, limits);
    MemoryPlan plan = divide(policy, limits);
    if (!device_) {
      set_states(policy);
      return {policy, plan};
    }
    policy.cache.loads_ahead =
        std::max(kLoadsAhead, policy.cache.hot_count(most_choices(model_)) + 1);
    if (std::optional<Policy> lending = with_lent_slots(policy, limits)) {
      policy = *lending;
      plan = divide(policy, limits);
    }
    choose_what_stays(policy);
    policy.layout.compute().kv_spill_bytes =
        std::min(policy.layout.compute().kv_spill_bytes, room_on_host(policy));
    if (policy.division.attends_elsewhere()) {  // there is no other place for keys and values
      policy.layout.compute().kv_spill_bytes =
          std::max(policy.layout.compute().kv_spill_bytes, spilled_sequence_bytes(policy));
    }
    set_states(policy);
    MemoryPlan host = plan_memory(demand_on_host(policy), limits_on_host());
    policy.layout.set_host_slots(host.slots);
    return {policy, plan, host};
  }

 private:
  // Gives every kind its memory; keys and values that find none in the compute tier spill where
  // they may.
  MemoryPlan divide(Policy& policy, const MemoryLimits& limits) const {
    MemoryPlan plan = plan_memory(demand(policy, 0), limits);
    Policy staged = policy;
    staged.layout.kv_stages = kStages;
    staged.layout.kv_stage_bytes = stage_bytes(policy);
    staged.layout.kv_sequence_pages = kv_pages(policy);
    const MemoryDemand spilling = demand(staged, kStages * staged.layout.kv_stage_bytes);
    if (policy.division.attends_elsewhere() ||
        (may_spill() && plan.kv_bytes < kv_wanted(policy) && one_fits_on_host(policy) &&
         least_bytes(spilling) <= limits.bytes)) {
      policy = staged;
      plan = plan_memory(spilling, limits);
      if (policy.division.shared_rows > 0 && !policy.division.attends_elsewhere())
        add_stages(policy, plan, limits);
      policy.layout.compute().kv_spill_bytes = spill_bytes(policy, plan.kv_bytes);
    }
    policy.layout.compute().kv_bytes = plan.kv_bytes;
    policy.layout.compute().slots = plan.slots;
    return plan;
  }

  // Adds stages of keys and values. A CPU that shares experts waits until the device has attended
  // to all micro-batches, and keys and values with a stage of their own come while the layer before
  // is computed; so as many micro-batches get a stage as is possible without taking slots from
  // weights.
  void add_stages(Policy& policy, MemoryPlan& plan, const MemoryLimits& limits) const {
    const int64_t used = std::min(policy.group.micro_batches, workload_.sequences);
    for (int64_t stages = used; stages > kStages; --stages) {
      const MemoryDemand more = demand(policy, stages * policy.layout.kv_stage_bytes);
      if (least_bytes(more) > limits.bytes) continue;
      MemoryPlan other = plan_memory(more, limits);
      if (other.slots != plan.slots) continue;
      policy.layout.kv_stages = stages;
      plan = std::move(other);
      return;
    }
  }

  // Slices are given up where more rows or sequences fit without them, unless few experts are used:
  // then they gain most.
  Policy that_fits(const Policy& wanted, const MemoryLimits& limits) const {
    const Policy fitting = halved_until_it_fits(wanted, limits);
    if (!wanted.division.slices_experts) return fitting;
    Policy whole = wanted;
    whole.division.slices_experts = false;
    whole = halved_until_it_fits(whole, limits);
    const bool more = whole.group.rows() > fitting.group.rows() ||
                      whole.group.sequences() > fitting.group.sequences();
    const bool must = !least_fits(fitting, limits);
    return must || (more && !uses_few_experts(wanted)) ? whole : fitting;
  }

  // Halves the rows that are computed at once, then the sequences, until the least fits;
  // plan_memory refuses a policy that does not fit even then.
  Policy halved_until_it_fits(Policy policy, const MemoryLimits& limits) const {
    while (!least_fits(policy, limits)) {
      const int64_t least = std::max(policy.group.micro_batch, least_rows(model_, workload_));
      if (policy.group.micro_batch_rows > least) {
        policy.group.micro_batch_rows = std::max(least, policy.group.micro_batch_rows / 2);
      } else if (policy.group.micro_batches > 1 && !limits_.micro_batches) {
        policy.group.micro_batches /= 2;
      } else if (policy.group.micro_batch > 1 && !limits_.micro_batch) {
        policy.group.micro_batch /= 2;
        policy.group.micro_batch_rows =
            std::max(policy.group.micro_batch, least_rows(model_, workload_));
      } else {
        break;
      }
    }
    return policy;
  }

  // Chooses the experts that stay, unless a predictor says so from pass to pass. A pass that uses
  // most experts of every layer finds those that were kept. A pass that uses few, while the CPU
  // computes missing ones, is served best by the experts that are used most: the link brings them
  // when it has nothing else to do.
  void choose_what_stays(Policy& policy) const {
    const int64_t slots = policy.layout.compute().slots[index_of(UnitKind::expert)];
    if (slots == layouts_.units(UnitKind::expert)) return;
    if (properties_of(policy.strategy).follows_predictor()) return;
    if (policy.division.shared_rows > 0 && uses_few_experts(policy)) {
      if (!limits_.eviction) policy.cache.eviction = "lfu";
      return;
    }
    policy.cache.kept_experts =
        std::max<int64_t>(slots - policy.layout.lent_slots - policy.cache.loads_ahead - 1, 0);
  }

  // Whether a pass of decoding rows uses few experts of every layer.
  bool uses_few_experts(const Policy& policy) const {
    return policy.group.sequences() * most_choices(model_) < most_experts(model_);
  }

  // Whether a sequence's keys and values fit in host memory: otherwise all have to fit in the
  // compute tier.
  bool one_fits_on_host(const Policy& policy) const {
    return !device_ || room_on_host(policy) >= spilled_sequence_bytes(policy);
  }

  // Bytes left for keys and values in host memory, after the least that nothing runs without: with
  // less than all sequences want, fewer run at a time.
  uint64_t room_on_host(Policy policy) const {
    policy.layout.compute().kv_spill_bytes = 0;
    const uint64_t limit = limits_on_host().bytes;
    return limit - std::min(limit, least_bytes(demand_on_host(policy)));
  }

  // A policy in which prompts borrow expert slots. Rows of prompts are many and seldom: where
  // experts come and go anyway, their slots are lent for the rows and for all scratch. Nothing
  // where all experts stay, or too few would be left.
  std::optional<Policy> with_lent_slots(Policy policy, const MemoryLimits& limits) const {
    constexpr size_t kExpert = index_of(UnitKind::expert);
    if (policy.layout.compute().slots[kExpert] >= layouts_.units(UnitKind::expert)) return {};
    policy.layout.kv_stages = 0;
    policy.layout.compute().kv_spill_bytes = 0;
    policy.layout.rows_in_place = policy.group.decode_rows();
    const uint64_t lent = group_row_bytes(model_, policy, policy.group.rows()) +
                          with_gaps(working_bytes(policy, policy.group.rows()));
    const uint64_t slot = DeviceMemory::rounded(layouts_.packed_bytes(UnitKind::expert));
    policy.layout.lent_slots = static_cast<int64_t>((lent + slot - 1) / slot);
    if (policy.layout.lent_slots + policy.cache.loads_ahead > layouts_.units(UnitKind::expert))
      return {};
    if (least_bytes(demand(policy, 0)) > limits.bytes) return {};
    if (limits.expert_slots &&
        *limits.expert_slots <= policy.layout.lent_slots + policy.cache.loads_ahead) {
      return {};
    }
    return policy;
  }

  MemoryLimits compute_limits() const {
    MemoryLimits limits{
        .bytes = 0, .kv_bytes = limits_.kv_bytes, .expert_slots = limits_.expert_slots};
    if (device_) {
      limits.bytes = vram_limit(limits_, *device_);
      limits.memory = "VRAM";
      limits.flag = "--vram";
    } else {
      limits.bytes = ram_bytes_;
    }
    return limits;
  }
  MemoryLimits limits_on_host() const { return {.bytes = ram_bytes_, .memory = "RAM"}; }
  bool least_fits(const Policy& policy, const MemoryLimits& limits) const {
    return least_bytes(demand(policy, 0)) <= limits.bytes;
  }
  bool may_spill() const { return device_ || inputs_.may_spill; }

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
  // Bytes of the cache of one sequence of these pages.
  uint64_t sequence_bytes(const Policy& policy, int64_t pages) const {
    return static_cast<uint64_t>(pages) * page_bytes(policy) + state_bytes();
  }
  uint64_t state_bytes() const { return SequenceStates::sequence_bytes(model_); }
  uint64_t spilled_state_bytes() const { return SequenceStates::spilled_sequence_bytes(model_); }
  uint64_t kv_bytes(const Policy& policy) const { return sequence_bytes(policy, kv_pages(policy)); }
  int64_t sequences_wanted(const Policy& policy) const {
    return std::min(workload_.sequences, policy.group.sequences());
  }
  uint64_t kv_wanted(const Policy& policy) const {
    const auto sequences = static_cast<uint64_t>(sequences_wanted(policy));
    return std::max(kv_bytes(policy),
                    sequences * sequence_bytes(policy, kv_pages(policy, workload_.usual_tokens())));
  }

  // Divides the bytes of caches between pages and states.
  void set_states(Policy& policy) const {
    const int64_t usual = kv_pages(policy, workload_.usual_tokens());
    TierMemory& compute = policy.layout.compute();
    compute.state_bytes =
        states_within(compute.kv_bytes, state_bytes(), sequence_bytes(policy, usual),
                      sequence_bytes(policy, kv_pages(policy)));
    compute.state_spill_bytes =
        states_within(compute.kv_spill_bytes, spilled_state_bytes(),
                      static_cast<uint64_t>(usual) * spilled_page(policy) + spilled_state_bytes(),
                      spilled_sequence_bytes(policy));
  }
  // Bytes for the states of as many sequences of the usual size as fit, but one of the largest size
  // fits as well where there is room for one.
  static uint64_t states_within(uint64_t bytes, uint64_t state, uint64_t usual, uint64_t largest) {
    if (state == 0) return 0;
    uint64_t sequences = bytes / std::min(usual, largest);
    if (bytes >= largest) sequences = std::min(sequences, (bytes - (largest - state)) / state);
    return sequences * state;
  }

  uint64_t stage_bytes(const Policy& policy) const {
    const std::vector<uint64_t> pages = spilled_page_bytes(policy);
    const std::vector<uint64_t> states = SequenceStates::spilled_version_bytes(model_);
    uint64_t most = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
      most = std::max(most, static_cast<uint64_t>(kv_pages(policy)) * pages[i] + 2 * states[i]);
    }
    return static_cast<uint64_t>(policy.group.micro_batch) * most;
  }
  // Bytes of keys, values and states of the wanted sequences that find no room in `memory_bytes`.
  uint64_t spill_bytes(const Policy& policy, uint64_t memory_bytes) const {
    if (policy.division.attends_elsewhere()) {
      const auto pages = static_cast<uint64_t>(kv_pages(policy, workload_.usual_tokens()));
      return std::max(spilled_sequence_bytes(policy),
                      static_cast<uint64_t>(sequences_wanted(policy)) *
                          (pages * spilled_page(policy) + spilled_state_bytes()));
    }
    const auto in_memory = static_cast<int64_t>(memory_bytes / kv_bytes(policy));
    return static_cast<uint64_t>(sequences_wanted(policy) - in_memory) *
           spilled_sequence_bytes(policy);
  }
  // Bytes of a page of all layers.
  uint64_t spilled_page(const Policy& policy) const {
    uint64_t page = 0;
    for (const uint64_t bytes : spilled_page_bytes(policy)) page += bytes;
    return page;
  }
  uint64_t spilled_sequence_bytes(const Policy& policy) const {
    return static_cast<uint64_t>(kv_pages(policy)) * spilled_page(policy) + spilled_state_bytes();
  }

  // Keys and values that the CPU attends to lie in host memory, but those of prompts pass through
  // stages.
  MemoryDemand demand(const Policy& policy, uint64_t stage_bytes) const {
    if (policy.division.attends_elsewhere()) stage_bytes = kStages * this->stage_bytes(policy);
    const int64_t own_rows = policy.most_own_rows();
    uint64_t activations =
        group_row_bytes(model_, policy, own_rows) + working_bytes(policy, own_rows);
    uint64_t process = process_bytes_;
    if (device_) {
      activations = with_gaps(activations) + device_->processor_bytes;
      process = device_process_bytes(policy);
    }
    MemoryDemand demand{.process_bytes = process,
                        .activation_bytes = activations,
                        .units = {},
                        .shared_bytes = shared_on_device(policy),
                        .kv_least_bytes = kv_bytes(policy),
                        .kv_wanted_bytes = kv_wanted(policy),
                        .kv_stage_bytes = stage_bytes};
    if (stage_bytes > 0) demand.kv_least_bytes = 0;
    if (policy.division.attends_elsewhere()) demand.kv_wanted_bytes = 0;
    for (size_t k = 0; k < kUnitKinds; ++k) {
      const auto kind = static_cast<UnitKind>(k);
      demand.units[k] = {.units = layouts_.units(kind),
                         .least = std::min<int64_t>(1, layouts_.units(kind)),
                         .buffer_bytes = device_
                                             ? DeviceMemory::rounded(layouts_.packed_bytes(kind))
                                             : layouts_.buffer_bytes(kind)};
    }
    if (policy.layout.lent_slots > 0) {
      UnitDemand& experts = demand.units[index_of(UnitKind::expert)];
      experts.least = std::min(policy.layout.lent_slots + policy.cache.loads_ahead, experts.units);
    }
    return demand;
  }

  uint64_t working_bytes(const Policy& policy, int64_t rows) const {
    return klotski::working_bytes(model_, layouts_, inputs_.processor, policy, rows,
                                  logit_rows(policy));
  }
  int64_t logit_rows(const Policy& policy) const {
    return std::max(policy.decode_batch_rows(), workload_.logit_rows);
  }
  static uint64_t with_gaps(uint64_t bytes) { return bytes + bytes / kOpsSlack; }

  // Bytes of the driver, and of its tables of host memory that is going to be pinned: weights, and
  // keys and values that may lie there. Equal whatever ran on the device before, as long as that
  // took no more than was thought: one command gets one plan.
  uint64_t device_process_bytes(const Policy& policy) const {
    uint64_t to_pin = spill_bytes(policy, 0);
    for (size_t k = 0; k < kUnitKinds; ++k) {
      const auto kind = static_cast<UnitKind>(k);
      to_pin += static_cast<uint64_t>(layouts_.units(kind)) * layouts_.buffer_bytes(kind);
    }
    to_pin = std::max(std::min(to_pin, ram_bytes_), inputs_.memory.pinned_bytes);
    return std::max(device_->own_bytes_at_start + kDeviceMargin + to_pin / kPinnedPerTableByte,
                    device_->own_bytes + kLeastDeviceMargin +
                        (to_pin - inputs_.memory.pinned_bytes) / kPinnedPerTableByte);
  }

  // Bytes of the rows that the device and the CPU exchange. On the device, rows of experts lie with
  // the group's.
  uint64_t shared_on_host(const Policy& policy) const {
    const int64_t rows = policy.division.shared_rows;
    return shared_attention(policy) + (rows > 0 ? rounded(shared_row_bytes(model_, rows)) : 0);
  }
  uint64_t shared_on_device(const Policy& policy) const {
    return shared_attention(policy) +
           (policy.division.slices_experts ? DeviceMemory::rounded(slice_bytes(layouts_)) : 0);
  }
  uint64_t shared_attention(const Policy& policy) const {
    if (!policy.division.attends_elsewhere()) return 0;
    return kAttentionBuffers * rounded(attention_row_bytes(model_, policy.group.micro_batch));
  }
  static uint64_t rounded(uint64_t bytes) {
    return round_up_to_alignment(DeviceMemory::rounded(bytes));
  }
  uint64_t cpu_scratch_bytes(const Policy& policy) const {
    if (policy.division.shared_rows == 0 && !policy.division.attends_elsewhere()) return 0;
    int64_t width = 0;
    int64_t head_dim = 0;
    for (const Layer& layer : model_.layers) {
      width = std::max(width, layer.feed_forward.width);
      head_dim = std::max<int64_t>(head_dim, layer.attention.query_head_width());
    }
    int64_t temporary = 0;
    for (const Layer& layer : model_.layers) {
      temporary = std::max(temporary, layer.attention.temporary_width());
    }
    return inputs_.cpu->scratch_bytes(
               {.rows = std::max(policy.division.shared_rows, policy.group.micro_batch),
                .choices = most_choices(model_),
                .in_width = model_.hidden,
                .expert_width = width,
                .head_dim = head_dim}) +
           static_cast<uint64_t>(policy.group.micro_batch * temporary) * sizeof(float);
  }

  // The demand for host memory. Units that lie on the device for good need only a few slots to pass
  // through.
  MemoryDemand demand_on_host(const Policy& policy) const {
    const int64_t logits = logit_rows(policy) * model_.vocabulary;
    MemoryDemand demand{.process_bytes = process_bytes_ + kCopyBuffers,
                        .activation_bytes = static_cast<uint64_t>(logits) * sizeof(float) +
                                            cpu_scratch_bytes(policy),
                        .units = {},
                        .shared_bytes = shared_on_host(policy),
                        .kv_least_bytes = policy.layout.compute().kv_spill_bytes,
                        .kv_wanted_bytes = policy.layout.compute().kv_spill_bytes};
    for (size_t k = 0; k < kUnitKinds; ++k) {
      const auto kind = static_cast<UnitKind>(k);
      const int64_t units = layouts_.units(kind);
      const int64_t least = std::min(kLeastBelow, units);
      const int64_t lent = kind == UnitKind::expert ? policy.layout.lent_slots : 0;
      demand.units[k] = {.units = policy.layout.compute().slots[k] - lent < units ? units : least,
                         .least = least,
                         .buffer_bytes = round_up_to_alignment(layouts_.buffer_bytes(kind))};
    }
    return demand;
  }

  const ModelDescription& model_;
  const UnitLayouts& layouts_;
  const RunInputs& inputs_;
  const std::optional<DeviceMemoryState>& device_;
  const RunLimits& limits_;
  const Workload& workload_;
  uint64_t ram_bytes_;  // allowed
  uint64_t process_bytes_;
};

}  // namespace

// All free memory, less a sixteenth for other programs. The user may allow more than the machine
// has free now, never more than the limits of this process and its groups.
uint64_t ram_limit(const RunLimits& limits, const MachineMemory& memory) {
  if (limits.hypothetical) return *limits.ram_bytes;
  MemoryLeft left = memory.left;
  if (limits.ram_bytes) left.machine.reset();
  for (std::optional<uint64_t>* bound : {&left.address_space, &left.data}) {
    if (*bound) **bound -= std::min(**bound, memory.stack_bytes);
  }
  const uint64_t free_bytes = std::min(left.least(), UINT64_MAX / 2);
  return std::min(limits.ram_bytes.value_or(UINT64_MAX),
                  memory.resident_bytes + free_bytes - free_bytes / 16);
}

// All memory that was free before anything ran, less a sixteenth of it for other users of the
// device.
uint64_t vram_limit(const RunLimits& limits, const DeviceMemoryState& device) {
  const uint64_t all = device.own_bytes + device.free_bytes;
  if (!limits.vram_bytes) return all - (all - std::min(all, device.own_bytes_at_start)) / 16;
  return limits.hypothetical ? *limits.vram_bytes : std::min(*limits.vram_bytes, all);
}

RunPlan plan_run(const RunInputs& inputs, const RunLimits& limits, const Workload& workload) {
  if (inputs.model.encoder && limits.attention_window > 0) {
    fail(ErrorKind::usage,
         "--attention-window: expected a model without an encoder, whose input is seen as a whole; "
         "leave it out");
  }
  return MemoryDivision(inputs, limits, workload)
      .plan(group_policy(inputs.model, limits, workload, inputs.memory.device.has_value()));
}

int64_t sequences_at_once(const ModelDescription& model, const RunPlan& plan,
                          const Workload& workload) {
  const Policy& policy = plan.policy;
  const auto pages =
      static_cast<uint64_t>(pages_of_sequence(model, policy, workload.usual_tokens()));
  const DType type = kv_type(policy.precision);
  uint64_t spilled = SequenceStates::spilled_sequence_bytes(model);
  for (const uint64_t bytes : PagedKvCache::spilled_page_bytes(model, type)) {
    spilled += pages * bytes;
  }
  const uint64_t in_memory =
      pages * PagedKvCache::page_bytes(model, type) + SequenceStates::sequence_bytes(model);
  const uint64_t sequences = policy.layout.compute().kv_bytes / in_memory +
                             policy.layout.compute().kv_spill_bytes / spilled;
  return std::clamp<int64_t>(static_cast<int64_t>(sequences), 1, policy.group.sequences());
}

}  // namespace klotski
