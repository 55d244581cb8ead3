#pragma once

// Attention of a decoder's rows over the encoder's output, with grouped heads. The functions of
// forward/layer.h for layers of this kind.

#include <span>

#include "forward/layer.h"

namespace klotski {

void keep_encoded(const Arithmetic& with, const GroupedHeads& shape, ConstRows hidden,
                  std::span<const AttendingSequence> sequences, const WeightSet& weights);
void cross_attention(const Arithmetic& with, const GroupedHeads& shape, Rows hidden,
                     std::span<const AttendingSequence> sequences, const WeightSet& weights);

}  // namespace klotski
