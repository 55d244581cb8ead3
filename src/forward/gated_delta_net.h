#pragma once

// The arithmetic of a gated delta net: linear attention with a state of fixed size. The functions
// of forward/layer.h for layers of this kind.

#include <span>

#include "forward/layer.h"

namespace klotski {

void pre_attention(const Arithmetic& with, const GatedDeltaNet& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation);
// Does nothing: attention() writes the state.
void keep(const Arithmetic& with, const GatedDeltaNet& shape,
          std::span<const AttendingSequence> sequences);
// Reads the committed state of each sequence and writes the one after its rows. Also changes the
// inputs.
void attention(const Arithmetic& with, const GatedDeltaNet& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights);
void project_attended(const Arithmetic& with, const GatedDeltaNet& shape, Rows out,
                      ConstRows attended, const WeightSet& weights);

}  // namespace klotski
