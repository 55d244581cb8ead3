#include "schedule/group_bytes.h"

#include <algorithm>

#include "forward/weights.h"
#include "memory/device_memory.h"
#include "model/counts.h"

namespace klotski {

uint64_t group_row_bytes(const ModelDescription& model, const Policy& policy, int64_t most_rows) {
  const int64_t choices = most_choices(model);
  const int64_t shared = std::min(most_rows, policy.division.shared_rows);
  const int64_t rows = std::max(most_rows * (2 + choices), shared * (2 + 2 * choices));
  return static_cast<uint64_t>(rows * model.hidden) * sizeof(float);
}

uint64_t working_bytes(const ModelDescription& model, const UnitLayouts& layouts,
                       const Processor& processor, const Policy& policy, int64_t rows,
                       int64_t logit_rows) {
  int64_t attention_width = 0;
  int64_t projected_width = 0;
  int64_t head_dim = 0;
  int64_t expert_width = 0;
  int64_t shared_width = 0;
  for (const Layer& layer : model.layers) {
    const Attention& shape = layer.attention;
    attention_width = std::max(
        attention_width, shape.input_width() + shape.output_width() + shape.temporary_width());
    projected_width = std::max(projected_width, shape.widest_projected());
    head_dim = std::max<int64_t>(head_dim, shape.query_head_width());
    expert_width = std::max(expert_width, layer.feed_forward.width);
    if (layer.feed_forward.shared) {
      shared_width = std::max(shared_width, layer.feed_forward.shared->width);
    }
  }
  const int64_t attention =
      std::min(policy.group.micro_batch_rows, rows) * (attention_width + model.hidden);
  const int64_t logits = logit_rows * (model.vocabulary + model.hidden);
  const int64_t floats = attention + logits;
  const MostWork most{.rows = rows,
                      .choices = most_choices(model),
                      .in_width = std::max(model.hidden, projected_width),
                      .expert_width = std::max(expert_width, shared_width),
                      .head_dim = head_dim};
  return static_cast<uint64_t>(floats) * sizeof(float) + processor.scratch_bytes(most) +
         processor.expansion_bytes(most, policy.precision, layouts.formats());
}

uint64_t exchanged_expert_row_bytes(const ModelDescription& model, int64_t rows) {
  const auto bytes =
      static_cast<uint64_t>(rows * model.hidden * (1 + most_choices(model))) * sizeof(float);
  return (bytes + kCountBytes - 1) / kCountBytes * kCountBytes;
}

uint64_t shared_row_bytes(const ModelDescription& model, int64_t rows) {
  return exchanged_expert_row_bytes(model, rows) + kCountBytes;
}

int64_t widest_attention_input(const ModelDescription& model) {
  int64_t widest = 0;
  for (const Layer& layer : model.layers) widest = std::max(widest, layer.attention.input_width());
  return widest;
}

uint64_t attention_row_bytes(const ModelDescription& model, int64_t rows) {
  int64_t attended = 0;
  for (const Layer& layer : model.layers) {
    attended = std::max(attended, layer.attention.output_width());
  }
  return static_cast<uint64_t>(rows * (widest_attention_input(model) + attended)) * sizeof(float);
}

uint64_t slice_part_bytes(const TensorView& part) {
  uint64_t bytes = 0;
  for (const BytePlane& plane : planes_of(part)) bytes += DeviceMemory::rounded(plane.bytes());
  return bytes;
}

uint64_t slice_bytes(const UnitLayouts& layouts) {
  uint64_t most = 0;
  for (const auto& [unit, layout] : layouts.all()) {
    if (unit.kind != UnitKind::expert) continue;
    const ExpertWeights whole = expert_at(nullptr, unit.kind, layout);
    const auto outputs = static_cast<int64_t>(static_cast<double>(whole.gate.rows()) * kMostSlice);
    ExpertWeights slice = outputs_between(whole, 0, outputs);
    uint64_t bytes = 0;
    for (const TensorView* part : slice.tensors()) bytes += slice_part_bytes(*part);
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace klotski
