#pragma once

#include "kernels/cpu/kernels.h"

namespace klotski::cpu::KLOTSKI_ISA {

int64_t block_bytes(int64_t width);
void pack(const BlockColumns& columns);
void multiply(const Strip& strip);
extern const Arrangement kArrangement;
void expand(const CompactRows& rows);
void expand_blocks(const BlockRows& rows);
float softmax(const ScoreRow& row, SoftmaxState& state);
void scale(float* values, int64_t count, float factor);
void mix(const Mix& mix);
void gate(float* values, const float* up, int64_t count, GateFunction function);
void clamped_swiglu(float* values, const float* up, int64_t count, float slope, float limit);
float sum_of_squares(const float* values, int64_t count);
void delta_rule(const DeltaColumns& columns);

}  // namespace klotski::cpu::KLOTSKI_ISA
