#include "engine/prepared_model.h"

namespace klotski {

PreparedModel::PreparedModel(const ModelDescription& model, const Checkpoint& checkpoint,
                             const Ops& ops, RunPlan plan, const PipelineOptions& options)
    : layouts_(model, checkpoint),
      plan_(std::move(plan)),
      compute_tier_(std::make_unique<Tier>("RAM", plan_.memory.limit_bytes)) {
  reservations_.push_back(compute_tier_->reserve("program", plan_.memory.process_bytes));
  reservations_.push_back(compute_tier_->reserve("activations", plan_.memory.activation_bytes));
  reservations_.push_back(compute_tier_->reserve("KV cache", plan_.memory.kv_bytes));
  pipeline_ = std::make_unique<Pipeline>(model, checkpoint, layouts_, plan_.policy, *compute_tier_,
                                         ops, options);
}

}  // namespace klotski
