#pragma once

// Block formats: quantised weights as GGUF files have them. A row is blocks of 32 or 256 columns,
// one after the other, each with its own scales. A block expands to F32 numbers; products and sums
// are rounded one by one, never fused, so that every machine gives the same bits.

#include <cstddef>
#include <span>

#include "tensor/format.h"

namespace klotski {

// The formats, in the order of DType from DType::Q4_0 on.
std::span<const WeightFormat> block_formats();

// Functions that expand one block. Numbers of more than a byte are little-endian, "half" is an F16
// number, and q is a number of few bits that the block holds for each column.
//
// Blocks of 32 columns. Byte i of the q's of four bits has those of columns i (lower half) and
// 16 + i (upper half).
void expand_q4_0(const std::byte* block, float* out);    // half scale, 16 bytes: scale * (q - 8)
void expand_q4_1(const std::byte* block, float* out);    // halves scale, least, 16 bytes:
                                                         // scale * q + least
void expand_q5_0(const std::byte* block, float* out);    // half scale, 32 fifth bits by column, 16
                                                         // bytes: scale * (q - 16)
void expand_q5_1(const std::byte* block, float* out);    // halves scale, least, 32 fifth bits, 16
                                                         // bytes: scale * q + least
void expand_q8_0(const std::byte* block, float* out);    // half scale, 32 signed bytes: scale * q
void expand_iq4_nl(const std::byte* block, float* out);  // half scale, 16 bytes: scale * level[q]
void expand_mxfp4(const std::byte* block, float* out);  // exponent byte e, 16 bytes of FP4 numbers:
                                                        // 2^(e - 127) * number
// Blocks of 256 columns in groups of 16 or 32 columns, whose scales are small numbers times the
// block's own.
void expand_q2_k(const std::byte* block, float* out);
void expand_q3_k(const std::byte* block, float* out);
void expand_q4_k(const std::byte* block, float* out);
void expand_q5_k(const std::byte* block, float* out);
void expand_q6_k(const std::byte* block, float* out);
void expand_iq4_xs(const std::byte* block, float* out);

// The sixteen levels of IQ4_NL and IQ4_XS, which lie closer near zero.
inline constexpr int kNonLinearLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace klotski
