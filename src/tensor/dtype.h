#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace klotski {

// Every element type the safetensors format defines, under the format's own names.
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
};

inline constexpr int kDTypeCount = 22;

// Bits of one element; F4 and the two F6 are packed, so a byte may hold parts of several elements.
int bits_per_element(DType dtype);
// Of a type whose elements take whole bytes.
inline int64_t bytes_per_element(DType dtype) { return bits_per_element(dtype) / 8; }

std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);  // exact case, as the format has it

}  // namespace klotski
