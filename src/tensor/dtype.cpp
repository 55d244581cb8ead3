#include "tensor/dtype.h"

#include <array>
#include <cstddef>

#include "base/error.h"
#include "tensor/format.h"

namespace klotski {

namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};

// Names and bits in the order of the enumeration.
constexpr std::array<DTypeInfo, kFileDTypeCount> kInfo = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

}  // namespace

int bits_per_element(DType dtype) {
  if (is_packed(dtype)) {
    fail(ErrorKind::internal, "a single number was asked for of {}", dtype_name(dtype));
  }
  return kInfo[static_cast<size_t>(dtype)].bits;
}

bool has_bf16_values(DType dtype) {
  return dtype == DType::BF16 || (is_packed(dtype) && format_of(dtype).values == DType::BF16);
}

bool is_multiplied_as_bf16(DType dtype) {
  return has_bf16_values(dtype) || (is_packed(dtype) && format_of(dtype).values == DType::F32);
}

int64_t bytes_per_row(DType dtype, int64_t columns) {
  return is_packed(dtype) ? format_of(dtype).row_bytes(columns)
                          : columns * bits_per_element(dtype) / 8;
}

std::string_view dtype_name(DType dtype) {
  return is_packed(dtype) ? format_of(dtype).name : kInfo[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kFileDTypeCount; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace klotski
