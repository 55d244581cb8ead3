#pragma once

// The naive operations, written to be read: plain loops, no blocking, no vector instructions.

#include "kernels/ops.h"

namespace klotski::reference {

void embed(Rows out, const TensorView& table, std::span<const TokenId> tokens);
void rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon);
void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
            Precision precision);
void experts(std::span<const ExpertProduct> products, Precision precision);
void rope(const RopeArguments& arguments);
void attention(std::span<const AttentionArguments> sequences);
void route(const RouteArguments& arguments);
void gate(Rows gate, ConstRows up, Activation activation);
void add(Rows out, ConstRows in);
void gather(Rows out, ConstRows in, std::span<const int32_t> rows);
void combine(Rows out, ConstRows slots_in, std::span<const float> weights);
void sigmoid(std::span<float> values);

}  // namespace klotski::reference
