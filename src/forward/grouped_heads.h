#pragma once

// The arithmetic of grouped heads: softmax attention over keys and values of every position. The
// functions of forward/layer.h for layers of this kind.

#include <span>

#include "forward/layer.h"

namespace klotski {

// Precision of scores. Learned weights that come after rope can make scores large, as can heads
// that are not scaled, and rounded queries would move them too far.
Precision score_precision(const Arithmetic& with, const GroupedHeads& shape);

void pre_attention(const Arithmetic& with, const GroupedHeads& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation);
void keep(const Arithmetic& with, const GroupedHeads& shape,
          std::span<const AttendingSequence> sequences);
void attention(const Arithmetic& with, const GroupedHeads& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights);

void project_attended(const Arithmetic& with, const GroupedHeads& shape, Rows out,
                      ConstRows attended, const WeightSet& weights);

}  // namespace klotski
