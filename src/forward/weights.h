#pragma once

#include <array>

#include "model/description.h"
#include "tensor/tensor_view.h"

namespace klotski {

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
  TensorView gate;  // [width][hidden]
  TensorView up;    // [width][hidden]
  TensorView down;  // [hidden][width]
};

}  // namespace klotski
