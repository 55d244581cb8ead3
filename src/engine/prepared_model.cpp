#include "engine/prepared_model.h"

namespace klotski {

PreparedModel::PreparedModel(const ModelDescription& model, const TensorSource& checkpoint,
                             Target& target, RunPlan plan, const PipelineOptions& options)
    : layouts_(model, checkpoint), plan_(std::move(plan)) {
  const MemoryPlan& memory = plan_.memory;
  compute_tier_ = std::make_unique<Tier>(target.device ? "VRAM" : "RAM", memory.limit_bytes);
  reservations_.push_back(compute_tier_->reserve("program", memory.process_bytes));
  ComputeMemory computing{.tier = *compute_tier_};
  if (target.device) {
    take_host_memory(target);
    device_memory_ = std::make_unique<DeviceMemory>(*target.device, *compute_tier_,
                                                    memory.total_bytes() - memory.process_bytes);
    ops_arena_.emplace(target.ops, device_memory_->take("activations", memory.activation_bytes));
    computing.device = device_memory_.get();
    computing.host = &host_->tier;
    computing.host_slots = &host_->weights;
    computing.cpu = target.cpu;
  } else {
    reservations_.push_back(compute_tier_->reserve("activations", memory.activation_bytes));
    reservations_.push_back(compute_tier_->reserve("KV cache", memory.kv_bytes));
  }
  pipeline_ = std::make_unique<Pipeline>(model, checkpoint, layouts_, plan_.policy, computing,
                                         target.ops, options);
}

void PreparedModel::take_host_memory(Target& target) {
  const MemoryPlan& plan = *plan_.host;
  const bool same = target.host && target.host->slots == plan.slots &&
                    plan.total_bytes() <= target.host->tier.limit_bytes();
  if (!same) {
    target.host.reset();  // gives its memory back before more is taken
    target.host =
        std::make_shared<HostTier>(*target.device, plan.limit_bytes, layouts_, plan.slots);
  }
  host_ = target.host;
  reservations_.push_back(host_->tier.reserve("program", plan.process_bytes));
  reservations_.push_back(host_->tier.reserve("activations", plan.activation_bytes));
}

}  // namespace klotski
