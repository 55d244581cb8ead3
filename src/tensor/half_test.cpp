#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace klotski {
namespace {

// The value of a half by the definition of the format, in double arithmetic, where it is exact.
double f16_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1F) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

uint16_t word(uint32_t value) { return static_cast<uint16_t>(value); }

TEST(F16, EveryValueEqualsItsDefinitionAndReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = f16_by_definition(word(bits));
    const float value = f16_to_float(word(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(float_to_f16(value), bits);
  }
}

TEST(F16, RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {  // each pair of finite neighbours
    const double low = f16_by_definition(word(bits));
    const double high = f16_by_definition(word(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit is enough
    ASSERT_EQ(float_to_f16(middle), (bits & 1) != 0 ? bits + 1 : bits) << bits;
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(float_to_f16(-middle), 0x8000u | ((bits & 1) != 0 ? bits + 1 : bits));
  }
}

TEST(F16, RangeEnds) {
  EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(float_to_f16(-0.0f), 0x8000);
  // A NaN whose payload lies only in the bits that a half has not.
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(BF16, EveryValueReturns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_float(word(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    } else {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(BF16, RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000u;
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle)), (bits & 1) != 0 ? bits + 1 : bits);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

}  // namespace
}  // namespace klotski
