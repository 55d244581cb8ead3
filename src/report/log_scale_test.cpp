#include "report/log_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "report/label_room.h"
#include "report/markup.h"

namespace klotski {
namespace {

Decades decades_of(std::initializer_list<double> values) {
  Decades decades;
  for (const double value : values) decades.include(value);
  return decades;
}

TEST(LogScale, DecadesHoldWhatIsIncluded) {
  const Decades decades = decades_of({0.03, 420});
  EXPECT_EQ(decades.low(), -2);
  EXPECT_EQ(decades.high(), 3);
  const Decades small = decades_of({2e-7, 3e-7});
  EXPECT_EQ(small.low(), -7);
  EXPECT_EQ(small.high(), -6);
}

TEST(LogScale, WhatCannotBeDrawnIsPassedOver) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(decades_of({0, -1, kInfinite, -kInfinite, std::nan(""), 1e300, 1e-300}).empty());
  EXPECT_FALSE(decades_of({1}).empty());
}

TEST(LogScale, WidensDownwards) {
  Decades decades = decades_of({100});
  decades.widen(3);
  EXPECT_EQ(decades.low(), -1);
  EXPECT_EQ(decades.high(), 2);
  Decades none;
  none.widen(3);
  EXPECT_TRUE(none.empty());
}

TEST(LogScale, KnownPointsAndTheirOrder) {
  const LogScale x{decades_of({0.1, 1000}), 100, 500};
  EXPECT_DOUBLE_EQ(x.at(0.1), 100);
  EXPECT_DOUBLE_EQ(x.at(1), 200);
  EXPECT_DOUBLE_EQ(x.at(1000), 500);
  EXPECT_NEAR(x.at(std::sqrt(10.0)), 250, 1e-9);
  const LogScale y{decades_of({0.1, 1000}), 500, 100};  // upside down
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-1, 3);
  for (int i = 0; i < 1000; ++i) {
    const double a = std::pow(10.0, exponent(random)), b = std::pow(10.0, exponent(random));
    EXPECT_EQ(a < b, x.at(a) < x.at(b));
    EXPECT_EQ(a<b, y.at(a)> y.at(b));
    EXPECT_NEAR(x.at(a) + y.at(a), 600, 1e-9);
    EXPECT_GE(x.at(a), 100 - 1e-9);
    EXPECT_LE(x.at(a), 500 + 1e-9);
  }
}

TEST(LogScale, TicksStayFew) {
  for (int high = 1; high <= 30; ++high) {
    const LogScale scale{decades_of({1e-30, std::pow(10.0, high)}), 0, 100};
    const std::vector<int> ticks = scale.ticks(12);
    EXPECT_LE(ticks.size(), 12u);
    EXPECT_GE(ticks.size(), 2u);
    EXPECT_EQ(ticks.front(), -30);
  }
  EXPECT_EQ((LogScale{decades_of({1, 1e4}), 0, 1}.ticks(12)), (std::vector{0, 1, 2, 3, 4}));
}

TEST(LogScale, Labels) {
  EXPECT_EQ(decade_label(0), "1");
  EXPECT_EQ(decade_label(-2), "0.01");
  EXPECT_EQ(decade_label(5), "100000");
  EXPECT_EQ(decade_label(7), "1e7");
  EXPECT_EQ(decade_label(-9), "1e-9");
}

TEST(Markup, NumbersForReaders) {
  EXPECT_EQ(with_prefix(121e12, "FLOP/s"), "121 TFLOP/s");
  EXPECT_EQ(with_prefix(1.6e12, "FLOP/s"), "1.60 TFLOP/s");
  EXPECT_EQ(with_prefix(16e9, "B/s"), "16.0 GB/s");
  EXPECT_EQ(with_prefix(999.9e6, "B/s"), "1.00 GB/s");
  EXPECT_EQ(with_prefix(0, "B/s"), "0.00 B/s");
  EXPECT_EQ(with_prefix(5e21, "B/s"), "5e+06 PB/s");
  EXPECT_EQ(short_number(7562.5), "7562");
  EXPECT_EQ(short_number(0.251), "0.251");
}

TEST(Markup, EscapesEveryLine) {
  EXPECT_EQ(escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
  EXPECT_EQ(escaped_lines("a<b\n\nc\x01\xff\n"), "a&lt;b\n\nc\\x01\\xff\n");
  EXPECT_EQ(escaped_lines(std::string(5000, 'x')), std::string(5000, 'x'));
  EXPECT_EQ(escaped_lines(""), "");
}

TEST(LabelRoom, TakesEachPlaceOnceAndNothingOutside) {
  LabelRoom room({0, 0, 100, 50});
  EXPECT_TRUE(room.take({10, 10, 30, 10}));
  EXPECT_FALSE(room.take({39, 19, 30, 10}));
  EXPECT_TRUE(room.take({40, 10, 30, 10}));  // next to it
  EXPECT_FALSE(room.take({80, 30, 30, 10}));
  EXPECT_FALSE(room.take({-1, 30, 5, 5}));
  room.block({0, 30, 200, 200});
  EXPECT_FALSE(room.take({0, 40, 5, 5}));
}

}  // namespace
}  // namespace klotski
