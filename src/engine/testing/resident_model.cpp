#include "engine/testing/resident_model.h"

#include <algorithm>

namespace klotski {

ResidentModel::ResidentModel(ModelDescription description, const TensorSource& checkpoint)
    : description_(std::move(description)) {
  const auto load = [&](const TensorSpec& spec) -> TensorView {
    const TensorEntry& entry = checkpoint.require(spec.name);
    storage_.push_back(std::make_unique_for_overwrite<std::byte[]>(entry.bytes));
    checkpoint.read(entry, std::span(storage_.back().get(), entry.bytes));
    const std::byte* data = storage_.back().get();
    if (!spec.slice) return {.data = data, .dtype = entry.dtype, .shape = spec.shape};
    // Some rows of a stored matrix.
    const int64_t row_bytes = bytes_per_row(entry.dtype, spec.shape.at(1));
    return {.data = data + spec.slice->first_row * row_bytes,
            .dtype = entry.dtype,
            .shape = spec.shape};
  };

  const auto load_expert = [&](const WeightUnit& unit) {
    const UnitLayout layout = layout_unit(description_, checkpoint, unit);
    storage_.push_back(std::make_unique_for_overwrite<std::byte[]>(layout.buffer_bytes));
    std::byte* buffer = storage_.back().get();
    for (const UnitRead& read : layout.reads) {
      const auto file = checkpoint.file(read.shard);
      const uint64_t bytes = std::min(read.bytes, file->size() - read.offset);
      file->read_at(read.offset, std::span(buffer + read.at, bytes));
    }
    settle(layout, buffer);
    return expert_at(buffer, unit.kind, layout);
  };

  for (const TensorSpec& spec : model_tensors(description_)) {
    model_weights_.set(spec.role, load(spec));
  }
  for (int64_t i = 0; i < description_.layer_count(); ++i) {
    const LayerId layer(i);
    WeightSet& weights = layer_weights_.emplace_back();
    for (const TensorSpec& spec : attention_tensors(description_, layer)) {
      weights.set(spec.role, load(spec));
    }
    for (const TensorSpec& spec : gate_tensors(description_, layer)) {
      weights.set(spec.role, load(spec));
    }
    std::vector<ExpertWeights>& experts = experts_.emplace_back();
    for (int64_t e = 0; e < description_.layer(layer).feed_forward.experts; ++e) {
      experts.push_back(load_expert(expert_unit(description_, layer, ExpertId(e))));
    }
  }
}

Buffer ResidentModel::forward(const Batch& batch, std::span<KvSequence* const> sequences,
                              PagedKvCache& cache, const Processor& ops,
                              Precision precision) const {
  const Arithmetic with{description_, ops, precision};
  Buffer hidden(ops, batch.rows(), description_.hidden);
  Buffer normed(ops, batch.rows(), description_.hidden);
  embed(with, hidden.rows(), model_weights_, batch.tokens, batch.positions);
  for (int64_t i = 0; i < description_.layer_count(); ++i) {
    const LayerId layer(i);
    norm_beside_attention(with, normed.rows(), hidden.rows(), layer_weights_[size_t(i)], layer);
    attend(with, hidden.rows(), layer, batch, sequences, cache);
    feed_forward(with, hidden.rows(), normed.rows(), layer);
  }
  const std::vector<int32_t> wanted = batch.logit_rows();
  Buffer result(ops, static_cast<int64_t>(wanted.size()), description_.vocabulary);
  logits(with, result.rows(), hidden.rows(), model_weights_, wanted);
  return result;
}

void ResidentModel::attend(const Arithmetic& with, Rows hidden, LayerId layer, const Batch& batch,
                           std::span<KvSequence* const> sequences, PagedKvCache& cache) const {
  const WeightSet& weights = layer_weights_[static_cast<size_t>(layer.value)];
  AttentionInputs inputs = pre_attention(with, hidden, weights, layer, rotation_of(with, batch));
  Buffer attended(with.ops, hidden.count, with.model.layer(layer).attention.output_width());
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    const KvView view = cache.view(*sequences[i], layer);
    const AttendingSequence attending{attended.rows(rows), rows_of(inputs.rows(), rows),
                                      view.cache(), rows.past};
    keep(with, std::span(&attending, 1), layer);
    attention(with, std::span(&attending, 1), weights, layer);
  }
  post_attention(with, hidden, attended.rows(), weights, layer);
}

void ResidentModel::feed_forward(const Arithmetic& with, Rows hidden, Rows normed,
                                 LayerId layer) const {
  const WeightSet& weights = layer_weights_[static_cast<size_t>(layer.value)];
  const std::vector<ExpertWeights>& experts = experts_[static_cast<size_t>(layer.value)];
  Routing routing = route(with, normed, hidden, weights, layer);
  with.ops.memory.finish();
  read_choices(routing);

  // Each expert runs once over all rows that chose it. Its results wait in the slot of their row,
  // so that the sum does not depend on the order in which experts ran.
  Buffer slots(with.ops, hidden.count * routing.top_k, hidden.width);
  for (size_t e = 0; e < experts.size(); ++e) {
    std::vector<int32_t> in_rows;
    std::vector<int32_t> out_rows;
    std::vector<float> scales;
    for (size_t slot = 0; slot < routing.chosen.size(); ++slot) {
      if (routing.chosen[slot] != ExpertId(static_cast<int64_t>(e))) continue;
      out_rows.push_back(static_cast<int32_t>(slot));
      in_rows.push_back(static_cast<int32_t>(static_cast<int64_t>(slot) / routing.top_k));
      if (!routing.chosen_scales.empty()) scales.push_back(routing.chosen_scales[slot]);
    }
    const ChosenExpert chosen{
        .weights = experts[e], .in_rows = in_rows, .out_rows = out_rows, .in_scales = scales};
    run_experts(with, slots.rows(), normed, std::span(&chosen, 1), layer);
  }
  add_shared_expert(with, hidden, normed, weights, layer);
  with.ops.combine(hidden, slots.rows(), routing.weights.span());
}

}  // namespace klotski
