// Attention by kind: only this file of the folder asks which kind a layer has.

#include "forward/cross_attention.h"
#include "forward/gated_delta_net.h"
#include "forward/grouped_heads.h"
#include "forward/latent_attention.h"
#include "forward/layer.h"
#include "forward/norm.h"

namespace klotski {

AttentionRows rows_of(const AttentionRows& rows, const BatchSequence& sequence) {
  AttentionRows own;
  own.parts.reserve(rows.parts.size());
  for (const Rows& part : rows.parts) own.parts.push_back(rows_of(part, sequence));
  return own;
}

AttentionInputs::AttentionInputs(const Processor& ops, const Attention& attention, int64_t rows) {
  for (const RowPart& part : attention.inputs()) parts_.emplace_back(ops, rows, part.width);
}

AttentionRows AttentionInputs::rows() {
  AttentionRows all;
  for (Buffer& part : parts_) all.parts.push_back(part.rows());
  return all;
}

void pre_attention(const Arithmetic& with, const AttentionRows& out, ConstRows hidden,
                   const WeightSet& weights, LayerId layer, const Rotation& rotation) {
  Buffer normed(with.ops, hidden.count, hidden.width);
  norm_rows(with, normed.rows(), hidden, weights[Role::attention_norm],
            weights[Role::attention_norm_bias]);
  std::visit(
      [&](const auto& kind) { pre_attention(with, kind, out, normed.rows(), weights, rotation); },
      with.model.layer(layer).attention.kind);
}

AttentionInputs pre_attention(const Arithmetic& with, ConstRows hidden, const WeightSet& weights,
                              LayerId layer, const Rotation& rotation) {
  AttentionInputs inputs(with.ops, with.model.layer(layer).attention, hidden.count);
  pre_attention(with, inputs.rows(), hidden, weights, layer, rotation);
  return inputs;
}

void keep(const Arithmetic& with, std::span<const AttendingSequence> sequences, LayerId layer) {
  std::visit([&](const auto& kind) { keep(with, kind, sequences); },
             with.model.layer(layer).attention.kind);
}

void attention(const Arithmetic& with, std::span<const AttendingSequence> sequences,
               const WeightSet& weights, LayerId layer) {
  std::visit([&](const auto& kind) { attention(with, kind, sequences, weights); },
             with.model.layer(layer).attention.kind);
}

void keep_encoded(const Arithmetic& with, ConstRows hidden,
                  std::span<const AttendingSequence> sequences, const WeightSet& weights,
                  LayerId layer) {
  const Attention& attention = with.model.layer(layer).attention;
  keep_encoded(with, attention.grouped_heads(), hidden, sequences, weights);
}

void cross_attention(const Arithmetic& with, Rows hidden,
                     std::span<const AttendingSequence> sequences, const WeightSet& weights,
                     LayerId layer) {
  const auto* heads = std::get_if<GroupedHeads>(&with.model.layer(layer).attention.kind);
  if (heads && heads->crosses) cross_attention(with, *heads, hidden, sequences, weights);
}

void project_attended(const Arithmetic& with, Rows out, ConstRows attended,
                      const WeightSet& weights, LayerId layer) {
  std::visit([&](const auto& kind) { project_attended(with, kind, out, attended, weights); },
             with.model.layer(layer).attention.kind);
}

}  // namespace klotski
