#pragma once

// The naive operations, written to be read: plain loops, no blocking, no vector instructions.

#include "kernels/ops.h"

namespace klotski {

// Of operations on the CPU: the program's own.
const OpsMemory& program_memory();

}  // namespace klotski

namespace klotski::reference {

void embed(Rows out, const TensorView& table, std::span<const TokenId> tokens);
void rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon);
void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
            Precision precision);
void experts(std::span<const ExpertProduct> products, Precision precision);
uint64_t scratch_bytes(const MostWork& most);
void rope(const RopeArguments& arguments);
void clip(std::span<float> values, float limit);
void store_kv(std::span<const KvRows> sequences);
void attention(std::span<const AttentionArguments> sequences);
void route(const RouteArguments& arguments);
void sort_by_expert(std::span<const RoutedRows> parts, int64_t experts, std::span<int32_t> in_rows,
                    std::span<int32_t> out_rows);
void gate(Rows gate, ConstRows up, Activation activation);
void add(Rows out, ConstRows in);
void gather(Rows out, ConstRows in, std::span<const int32_t> rows);
void scatter(Rows out, ConstRows in, std::span<const int32_t> rows);
void scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows);
void most_likely(std::span<TokenId> tokens, ConstRows logits);
void combine(Rows out, ConstRows slots_in, std::span<const float> weights);
void sigmoid(std::span<float> values);

}  // namespace klotski::reference
