#include "executor/cpu_attention.h"

#include "schedule/group_bytes.h"

namespace klotski {

CpuAttention::CpuAttention(const Arithmetic& with, const PagedKvCache& cache,
                           const ComputeMemory& memory, int64_t most_rows)
    : with_(with),
      cache_(cache),
      attended_at_(most_rows * widest_attention_input(with.model)),
      rows_(memory, "attention on the CPU", kAttentionBuffers,
            attention_row_bytes(with.model, most_rows)),
      weights_(with.model.layers.size()) {}

AttentionRows CpuAttention::inputs(float* at, LayerId layer, int64_t rows) const {
  AttentionRows all;
  for (const RowPart& part : with_.model.layer(layer).attention.inputs()) {
    all.parts.push_back({at, rows, part.width});
    at += rows * part.width;
  }
  return all;
}

Rows CpuAttention::attended(float* at, LayerId layer, int64_t rows) const {
  return {at + attended_at_, rows, with_.model.layer(layer).attention.output_width()};
}

AttentionRows CpuAttention::inputs_on_device(const Task& task, int64_t rows) const {
  return inputs(rows_.on_device(task.buffer), task.layer, rows);
}

Rows CpuAttention::attended_on_device(const Task& task, int64_t rows) const {
  return attended(rows_.on_device(task.buffer), task.layer, rows);
}

void CpuAttention::keep_weights(LayerId layer, const WeightSet& weights, ProcessorMemory& device) {
  std::optional<std::vector<KeptWeight>>& kept = weights_[static_cast<size_t>(layer.value)];
  if (kept) return;
  std::vector<KeptWeight> copies;
  for (const Role role : kAttendingRoles) {
    const TensorView& view = weights[role];
    if (view.shape.empty()) continue;
    KeptWeight& copy = copies.emplace_back(KeptWeight{.role = role, .bytes = {}, .view = view});
    copy.bytes.resize(planes_of(view).front().bytes());
    device.download(copy.bytes.data(), view.data, copy.bytes.size());
    copy.view.data = copy.bytes.data();
  }
  kept = std::move(copies);
}

void CpuAttention::queries_down(const Task& task, int64_t rows) {
  rows_.down(task.buffer, {0, rows * with_.model.layer(task.layer).attention.input_width()});
}

void CpuAttention::run(const Task& task, const MicroBatch& micro_batch) {
  const int64_t rows = micro_batch.batch.rows();
  float* at = rows_.on_host(task.buffer);
  WeightSet weights;
  const auto& of_layer = weights_[static_cast<size_t>(task.layer.value)];
  for (const KeptWeight& kept : *of_layer) {
    weights.set(kept.role, kept.view);
  }
  attend(with_, cache_, weights,
         {.micro_batch = micro_batch,
          .layer = task.layer,
          .inputs = inputs(at, task.layer, rows),
          .attended = attended(at, task.layer, rows)});
}

void CpuAttention::attended_up(const Task& task, int64_t rows) {
  const Attention& shape = with_.model.layer(task.layer).attention;
  const FloatRange attended{attended_at_, rows * shape.output_width()};
  rows_.up(task.buffer, std::span(&attended, 1));
}

}  // namespace klotski
