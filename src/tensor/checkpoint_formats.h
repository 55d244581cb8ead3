#pragma once

// Formats in which safetensors checkpoints hold quantised weights: the numbers of a matrix in one
// tensor, its scales and zero points in others. The configuration of a model says which of them its
// matrices have. They expand to F32 numbers: a product of a scale and a small number, rounded once.
//
// q is the number of four bits of a column, z that of its zero point; "group" is the number of
// columns that share a scale.
//
// fp8: F8_E4M3 numbers [rows][columns], a scale a block of 128 x 128: scale * number.
// int4, int4_zero_points: compressed-tensors' pack-quantized. Eight columns of a row in an I32, the
//   first in its lowest bits; scales [rows][groups]: scale * (q - 8), or scale * (q - z) where zero
//   points [rows / 8][groups] hold those of eight rows in an I32.
// gptq, gptq_v2: transposed. Eight columns of a row in an I32, [columns / 8][rows]; zero points of
//   eight rows in an I32, [groups][rows / 8]; scales [groups][rows]: scale * (q - (z + 1)), and
//   scale * (q - z) in gptq_v2.
// awq: transposed. Eight rows of a column in an I32, [columns][rows / 8], in the order 0, 2, 4, 6,
//   1, 3, 5, 7 from its lowest bits on; zero points [groups][rows / 8] in this order;
//   scales [groups][rows]: scale * (q - z).
// mxfp4: FP4 (E2M1) numbers [rows][columns / 32][16], two columns a byte, the first in its lower
//   half; an exponent byte e a block of 32 columns: 2^(e - 127) * number, and no number where e is
//   255.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/format.h"

namespace klotski {

enum class CheckpointMethod { fp8, int4, int4_zero_points, gptq, gptq_v2, awq, mxfp4 };

inline constexpr int64_t kFp8Block = 128;     // rows and columns that share a scale of fp8
inline constexpr int64_t kMxBlock = 32;       // columns that share an exponent of mxfp4
inline constexpr int64_t kNumbersInWord = 8;  // numbers of four bits in an I32
inline constexpr int64_t kWholeRow = int64_t{1} << 40;  // group of all columns, however many

// A format with the choices that its configuration states.
struct CheckpointFormat {
  CheckpointMethod method = CheckpointMethod::fp8;
  int64_t group = 0;  // columns that share a scale, or kWholeRow
  std::string name;
  std::vector<SideTensor> sides;
  WeightFormat format;
};

// All of them, in the order of their types. The formats refer to the rows of this list.
std::span<const CheckpointFormat> checkpoint_formats();

// The types of a method with groups of this size: one for each type that its scales may have. Empty
// where there is no such format.
std::vector<DType> checkpoint_types(CheckpointMethod method, int64_t group);

// The row of this list for a type; null for types of other formats.
const CheckpointFormat* checkpoint_format(DType dtype);

// The number of an F8_E4M3 code: sign, four bits of exponent, three of fraction. There are no
// infinities; the two codes with all bits set but the sign are NaN.
float e4m3_to_float(uint8_t code);

// WeightFormat::expand of each method; int4 with and without zero points.
void expand_fp8_row(const TensorView& matrix, int64_t row, std::byte* out);
void expand_int4_row(const TensorView& matrix, int64_t row, std::byte* out);
void expand_gptq_row(const TensorView& matrix, int64_t row, std::byte* out);
void expand_gptq_v2_row(const TensorView& matrix, int64_t row, std::byte* out);
void expand_awq_row(const TensorView& matrix, int64_t row, std::byte* out);
void expand_mxfp4_row(const TensorView& matrix, int64_t row, std::byte* out);
// WeightFormat::join of MXFP4 in safetensors, whose matrices become those of GGUF files.
void join_mxfp4_blocks(std::byte* numbers, int64_t blocks);

}  // namespace klotski
