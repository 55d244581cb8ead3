#include "tensor/dtype.h"

#include <array>
#include <cstddef>

namespace klotski {

namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};

// In the order of the enumeration.
constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

const DTypeInfo& info(DType dtype) { return kInfo.at(static_cast<size_t>(dtype)); }

}  // namespace

int bits_per_element(DType dtype) { return info(dtype).bits; }

std::string_view dtype_name(DType dtype) { return info(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace klotski
