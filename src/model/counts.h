#pragma once

#include <cstdint>

#include "model/description.h"

namespace klotski {

// Parameters by where they are used. "Expert" counts the routed experts only: the only expert of a
// dense layer runs for every token and counts as dense.
struct ParameterCounts {
  int64_t dense = 0;
  int64_t expert = 0;
  int64_t active = 0;  // touched by one token: dense and the chosen experts

  int64_t total() const { return dense + expert; }
};

ParameterCounts count_parameters(const ModelDescription& model);

// Experts that a token goes to, in the layer where it goes to most; at least one.
int64_t most_choices(const ModelDescription& model);
// Experts of a layer, at most.
int64_t most_experts(const ModelDescription& model);

// Numbers that all layers together keep in their caches for one token.
int64_t kv_numbers_per_token(const ModelDescription& model);
// Bytes of the states that all layers together keep of one sequence, whatever its length.
uint64_t state_bytes_per_sequence(const ModelDescription& model);

}  // namespace klotski
