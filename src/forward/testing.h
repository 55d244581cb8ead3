#pragma once

#include <array>
#include <cstddef>
#include <random>
#include <vector>

#include "forward/layer.h"
#include "model/tensors.h"

namespace klotski {

// Gives tensors of every role a name, so that attention_tensors() lists those of a model made by
// hand.
inline void name_all_tensors(ModelDescription& model) {
  for (int role = 0; role < static_cast<int>(Role::count_); ++role) {
    model.tensor_names.push_back({static_cast<Role>(role), "layer {layer}"});
  }
}

// Random weights of the attention of a model's first layer, as floats and as a set of views.
struct RandomAttention {
  std::array<std::vector<float>, static_cast<size_t>(Role::count_)> numbers;
  WeightSet set;

  explicit RandomAttention(const ModelDescription& model) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const TensorSpec& spec : attention_tensors(model, LayerId(0))) {
      int64_t count = 1;
      for (const int64_t size : spec.shape) count *= size;
      std::vector<float>& values = numbers[static_cast<size_t>(spec.role)];
      for (int64_t i = 0; i < count; ++i) values.push_back(0.4f * normal(random));
      set.set(spec.role,
              {reinterpret_cast<const std::byte*>(values.data()), DType::F32, spec.shape});
    }
  }
  const std::vector<float>& of(Role role) const { return numbers[static_cast<size_t>(role)]; }
};

}  // namespace klotski
