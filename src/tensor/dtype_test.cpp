#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "tensor/format.h"

namespace klotski {
namespace {

TEST(DType, NamesAndTypesMapBothWays) {
  std::set<std::string_view> names;
  for (int i = 0; i < format_count(); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)),
              i < kFileDTypeCount ? std::optional(dtype) : std::nullopt);
    names.insert(dtype_name(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(format_count()));
  EXPECT_EQ(dtype_name(DType::BOOL), "BOOL");
  EXPECT_EQ(dtype_name(DType::U64), "U64");
}

TEST(DType, NamesAreExact) {
  for (const char* bad : {"", "f32", "F32 ", "F 32", "F128", "BF16\n", "I4"}) {
    EXPECT_EQ(dtype_from_name(bad), std::nullopt) << bad;
  }
}

TEST(DType, SizesFollowTheNames) {
  EXPECT_EQ(bits_per_element(DType::BOOL), 8);
  EXPECT_EQ(bits_per_element(DType::F4), 4);
  EXPECT_EQ(bits_per_element(DType::F6_E2M3), 6);
  EXPECT_EQ(bits_per_element(DType::F6_E3M2), 6);
  EXPECT_EQ(bits_per_element(DType::F8_E8M0), 8);
  EXPECT_EQ(bits_per_element(DType::BF16), 16);
  EXPECT_EQ(bits_per_element(DType::F32), 32);
  EXPECT_EQ(bytes_per_element(DType::BF16), 2);
  EXPECT_EQ(bytes_per_element(DType::F64), 8);
  EXPECT_EQ(bits_per_element(DType::C64), 64);
  EXPECT_EQ(bytes_per_row(DType::BF16, 100), 200);
  for (int i = 0; i < kFileDTypeCount; ++i) {  // the first number in a name is its size in bits
    const std::string name(dtype_name(static_cast<DType>(i)));
    const size_t digit = name.find_first_of("0123456789");
    if (digit == std::string::npos) continue;
    EXPECT_EQ(bits_per_element(static_cast<DType>(i)), std::stoi(name.substr(digit))) << name;
  }
}

}  // namespace
}  // namespace klotski
