#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace klotski {

// Every element type the safetensors format defines, under the format's own names, and after them
// packed formats of weights (tensor/format.h): which such files have as tensors of these types, or
// which GGUF files have as types of their own. Formats of quantised checkpoints
// (tensor/checkpoint_formats.h) and formats that add_format() adds have values beyond the names.
enum class DType : uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,  // two F32: a complex number
  F64,
  I64,
  U64,
  BF16_COMPACT,  // tensor/compact.h
  Q4_0,          // this and the following: tensor/block_formats.h
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4,
  HQQ4_32,  // this and the following: tensor/hqq.h
  HQQ4_64,
  HQQ4_128,
  HQQ3_32,
  HQQ3_64,
  HQQ3_128,
};

inline constexpr int kFileDTypeCount = 22;
inline constexpr size_t kMostDTypes = 128;  // types of files and formats together, at most

// Bits of one element; F4 and the two F6 are packed, so a byte may hold parts of several elements.
// Refuses (internal) a packed format, of which only whole rows have a size.
int bits_per_element(DType dtype);
// Whether weights of this type expand to BF16 numbers.
bool has_bf16_values(DType dtype);
// Whether products that round their inputs to bf16 multiply weights of this type as bf16 numbers:
// F32 numbers that a packed format expands to are rounded as well.
bool is_multiplied_as_bf16(DType dtype);

// Bytes of an element of a type whose elements take whole bytes.
inline int64_t bytes_per_element(DType dtype) { return bits_per_element(dtype) / 8; }
// Bytes of a row: elements one after the other, or a row of a packed format; whole bytes.
int64_t bytes_per_row(DType dtype, int64_t columns);

std::string_view dtype_name(DType dtype);
// The type of a name, which is compared in exact case, as the format has it.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace klotski
