#pragma once

// The arithmetic of latent attention, in its absorbed form: queries are brought to the latent space
// before attention, and its results out of it after. The functions of forward/layer.h for layers of
// this kind.

#include <span>

#include "forward/layer.h"

namespace klotski {

void pre_attention(const Arithmetic& with, const LatentAttention& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation);
void keep(const Arithmetic& with, const LatentAttention& shape,
          std::span<const AttendingSequence> sequences);
void attention(const Arithmetic& with, const LatentAttention& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights);
void project_attended(const Arithmetic& with, const LatentAttention& shape, Rows out,
                      ConstRows attended, const WeightSet& weights);

}  // namespace klotski
