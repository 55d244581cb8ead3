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
    take_memory_below(target);
    device_memory_ = std::make_unique<DeviceMemory>(*target.device, *compute_tier_,
                                                    memory.total_bytes() - memory.process_bytes);
    ops_arena_.emplace(target.ops, device_memory_->take("activations", memory.activation_bytes));
    computing.device = device_memory_.get();
    computing.below = &below_->tier;
    computing.host_slots = &below_->weights;
    computing.cpu = target.cpu;
  } else {
    reservations_.push_back(compute_tier_->reserve("activations", memory.activation_bytes));
    reservations_.push_back(compute_tier_->reserve("KV cache", memory.kv_bytes));
  }
  pipeline_ = std::make_unique<Pipeline>(model, checkpoint, layouts_, plan_.policy, computing,
                                         target.ops, options);
}

void PreparedModel::take_memory_below(Target& target) {
  const MemoryPlan& plan = *plan_.below;
  const bool same = target.below && target.below->slots == plan.slots &&
                    plan.total_bytes() <= target.below->tier.limit_bytes();
  if (!same) {
    target.below.reset();  // gives its memory back before more is taken
    target.below =
        std::make_shared<MemoryBelow>(*target.device, plan.limit_bytes, layouts_, plan.slots);
  }
  below_ = target.below;
  reservations_.push_back(below_->tier.reserve("program", plan.process_bytes));
  reservations_.push_back(below_->tier.reserve("activations", plan.activation_bytes));
}

}  // namespace klotski
