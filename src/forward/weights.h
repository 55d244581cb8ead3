#pragma once

#include <array>
#include <vector>

#include "model/description.h"
#include "model/unit_layout.h"
#include "tensor/tensor_view.h"

namespace klotski {

// Whether a tensor of this role is a matrix that rows of the run's precision are multiplied by, and
// nothing else reads it.
inline bool only_multiplied(Role role) {
  switch (role) {
    case Role::output:
    case Role::query:
    case Role::key:
    case Role::value:
    case Role::query_down:
    case Role::query_up:
    case Role::latent_down:
    case Role::delta_input:
    case Role::delta_output:
    case Role::attention_output:
    case Role::cross_query:
    case Role::cross_key:
    case Role::cross_value:
    case Role::cross_output:
    case Role::shared_gate:
    case Role::shared_up:
    case Role::shared_down:
    case Role::expert_gate:
    case Role::expert_up:
    case Role::expert_down:
    case Role::dense_gate:
    case Role::dense_up:
    case Role::dense_down:
      return true;
    default:
      return false;
  }
}

// Roles of the tensors that attention() reads, besides those of projections.
inline constexpr std::array kAttendingRoles = {Role::sinks, Role::delta_convolution,
                                               Role::delta_log_decay, Role::delta_step_bias,
                                               Role::delta_norm};

// The partner of a role: up for an expert's gate and gate for its up, which are multiplied by the
// same rows. Other roles are their own partner.
inline Role gated_partner(Role role) {
  switch (role) {
    case Role::shared_gate:
      return Role::shared_up;
    case Role::shared_up:
      return Role::shared_gate;
    case Role::expert_gate:
      return Role::expert_up;
    case Role::expert_up:
      return Role::expert_gate;
    case Role::dense_gate:
      return Role::dense_up;
    case Role::dense_up:
      return Role::dense_gate;
    default:
      return role;
  }
}

// Views of the tensors of one place in the model, by role. A role the description does not ask for
// has no data.
class WeightSet {
 public:
  const TensorView& operator[](Role role) const { return views_[static_cast<size_t>(role)]; }
  void set(Role role, TensorView view) { views_[static_cast<size_t>(role)] = std::move(view); }

 private:
  std::array<TensorView, static_cast<size_t>(Role::count_)> views_;
};

// One expert, wherever its bytes are: kernels never know where a weight came from.
struct ExpertWeights {
  TensorView gate;            // [width][hidden]
  TensorView up;              // [width][hidden]; of no dimensions where experts are not gated
  TensorView down;            // [hidden][width]
  TensorView gate_bias = {};  // [width]; of no dimensions where the experts have no biases
  TensorView up_bias = {};    // [width]
  TensorView down_bias = {};  // [hidden]

  // The tensors that the expert has.
  std::vector<TensorView*> tensors() {
    std::vector<TensorView*> all;
    for (TensorView* tensor : {&gate, &up, &down, &gate_bias, &up_bias, &down_bias}) {
      if (!tensor->shape.empty()) all.push_back(tensor);
    }
    return all;
  }
};

// The weights of an expert in a routed layer's unit, or in the unit of a layer's dense part.
inline ExpertWeights expert_in(const WeightSet& unit, bool routed) {
  if (!routed) {
    return {unit[Role::dense_gate],      unit[Role::dense_up],      unit[Role::dense_down],
            unit[Role::dense_gate_bias], unit[Role::dense_up_bias], unit[Role::dense_down_bias]};
  }
  return {unit[Role::expert_gate],      unit[Role::expert_up],      unit[Role::expert_down],
          unit[Role::expert_gate_bias], unit[Role::expert_up_bias], unit[Role::expert_down_bias]};
}

// An expert whose unit lies at `data`; null: nowhere, only its form counts.
inline ExpertWeights expert_at(const std::byte* data, UnitKind kind, const UnitLayout& layout) {
  WeightSet weights;
  for (const PlacedTensor& tensor : layout.tensors) {
    weights.set(tensor.role, layout.view(tensor, data));
  }
  return expert_in(weights, kind == UnitKind::expert);
}

// Outputs begin .. end - 1 of an expert. Results of all parts of an expert add up to its own: the
// bias of down is the first part's.
inline ExpertWeights outputs_between(const ExpertWeights& whole, int64_t begin, int64_t end) {
  const bool gated = !whole.up.shape.empty();
  ExpertWeights part{rows_between(whole.gate, begin, end),
                     gated ? rows_between(whole.up, begin, end) : TensorView(),
                     columns_between(whole.down, begin, end)};
  if (whole.gate_bias.shape.empty()) return part;
  part.gate_bias = elements_between(whole.gate_bias, begin, end);
  if (gated) part.up_bias = elements_between(whole.up_bias, begin, end);
  if (begin == 0) part.down_bias = whole.down_bias;
  return part;
}

// Whether a matrix of a unit may lie in another order than in its file: not where rows of another
// matrix lie between its own. Gate and up of an expert are multiplied by the same rows; where their
// types differ, both are multiplied as float32, unless both are multiplied as bf16 numbers.
inline bool may_be_arranged(const WeightSet& unit, Role role) {
  const DType type = unit[role].dtype;
  const TensorView& partner = unit[gated_partner(role)];
  const DType other = partner.shape.empty() ? type : partner.dtype;
  return only_multiplied(role) && !unit[role].has_gaps() &&
         (type == other || (is_multiplied_as_bf16(type) && is_multiplied_as_bf16(other)));
}

}  // namespace klotski
