#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace klotski {

// Every element type the safetensors format defines, under the format's own names, and one that
// files have as bytes.
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
};

inline constexpr int kFileDTypeCount = 22;
inline constexpr int kDTypeCount = kFileDTypeCount + 1;

// Bits of one element; F4 and the two F6 are packed, so a byte may hold parts of several elements.
// Not of BF16_COMPACT: its rows are what has a size.
int bits_per_element(DType dtype);
// Whether its numbers are those of BF16.
inline bool has_bf16_values(DType dtype) {
  return dtype == DType::BF16 || dtype == DType::BF16_COMPACT;
}

// Of a type whose elements take whole bytes.
inline int64_t bytes_per_element(DType dtype) { return bits_per_element(dtype) / 8; }
// Of so many elements one after the other, or of a row of BF16_COMPACT; whole bytes.
int64_t bytes_per_row(DType dtype, int64_t columns);

std::string_view dtype_name(DType dtype);
// Exact case, as the format has it.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace klotski
