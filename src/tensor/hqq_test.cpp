#include "tensor/hqq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

constexpr std::array kHqqBits = {4, 3};
constexpr std::array<int64_t, 3> kHqqGroups = {32, 64, 128};

// Numbers of Student's t distribution with three degrees of freedom: some are far from the others.
std::vector<float> heavy_tailed(size_t count, uint64_t seed, float size = 0.02f) {
  std::mt19937_64 random(seed);
  std::student_t_distribution<float> weights(3.0f);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = size * weights(random);
  return numbers;
}

std::vector<std::byte> quantized(const HqqRow& form, const std::vector<float>& numbers) {
  std::vector<std::byte> row(static_cast<size_t>(form.row_bytes()));
  EXPECT_TRUE(quantize_hqq_row(form, numbers.data(), row.data()));
  return row;
}

std::vector<float> expanded_row(const HqqRow& form, const std::vector<std::byte>& row) {
  return testing_formats::expanded(
      {.data = row.data(), .dtype = hqq_type(form.bits, form.group), .shape = {1, form.columns}});
}

double sum_of_errors(const std::vector<float>& a, const std::vector<float>& b, double exponent) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(std::fabs(double{a[i]} - double{b[i]}), exponent);
  }
  return sum;
}

// Rounding to nearest between the least and the largest number of each group, in double precision
// and with scales and zero points that are not rounded.
std::vector<float> rounded_to_nearest(const HqqRow& form, const std::vector<float>& numbers) {
  std::vector<float> out;
  for (size_t begin = 0; begin < numbers.size(); begin += static_cast<size_t>(form.group)) {
    const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + std::min<std::ptrdiff_t>(form.group, numbers.end() - first);
    const double low = *std::min_element(first, last);
    const double scale = (double{*std::max_element(first, last)} - low) / form.most_code();
    for (auto at = first; at != last; ++at) {
      out.push_back(static_cast<float>(low + scale * std::round((*at - low) / scale)));
    }
  }
  return out;
}

// Half-quadratic solving as its authors define it, in double precision: the zero point, and the sum
// of absolute errors in steps that it leaves.
struct PlainSolution {
  double zero = 0.0;
  double error = 0.0;
};

double plain_error(const std::vector<float>& steps, int most, double zero) {
  double sum = 0.0;
  for (const double step : steps) {
    const double code = std::clamp(std::nearbyint(step + zero), 0.0, double(most));
    sum += std::fabs(step - (code - zero));
  }
  return sum;
}

PlainSolution solve_plainly(const std::vector<float>& steps, int most, double zero) {
  const double p = 0.7;
  double beta = 10.0;
  PlainSolution best{zero, plain_error(steps, most, zero)};
  for (int iteration = 0; iteration < 20; ++iteration) {
    double sum = 0.0;
    for (const double step : steps) {
      const double code = std::clamp(std::nearbyint(step + zero), 0.0, double(most));
      const double error = step - (code - zero);
      const double size = std::fabs(error);
      const double shrunk = size == 0.0 ? 0.0 : std::max(size - std::pow(size, p - 1) / beta, 0.0);
      sum += code - (step - std::copysign(shrunk, error));
    }
    zero = sum / static_cast<double>(steps.size());
    beta *= 1.01;
    const double error = plain_error(steps, most, zero);
    if (error >= best.error) break;
    best = {zero, error};
  }
  return best;
}

TEST(Hqq, ZeroPointsAreThoseOfAPlainImplementation) {
  int close = 0;
  double errors = 0.0, plain_errors = 0.0;
  constexpr int kCases = 2000;
  for (int seed = 0; seed < kCases; ++seed) {
    const int most = seed % 2 == 0 ? 15 : 7;
    std::vector<float> steps = heavy_tailed(64, static_cast<uint64_t>(seed), 1.0f);
    const auto [low, high] = std::minmax_element(steps.begin(), steps.end());
    const float scale = (*high - *low) / static_cast<float>(most);
    const float start = -*low / scale;
    for (float& step : steps) step /= scale;
    const PlainSolution plain = solve_plainly(steps, most, start);
    const double found = solve_hqq_zero(steps, most, start);
    const double error = plain_error(steps, most, found);
    EXPECT_LE(error, plain_error(steps, most, start) * (1 + 1e-6)) << seed;
    close += std::fabs(found - plain.zero) < 1e-4 ? 1 : 0;
    errors += error;
    plain_errors += plain.error;
  }
  // Some differ: a last round whose error falls by less than float numbers can tell is not taken.
  EXPECT_GT(close, kCases * 88 / 100);
  EXPECT_LT(errors, 1.001 * plain_errors);
}

TEST(Hqq, SolvingByHand) {
  // Errors 0, 0.1, 0.1 and 0.2: only the last is beyond the 0.17 from which a part of it, 0.0379,
  // counts as an outlier. The zero point becomes 0 - (0.1 + 0.1 + 0.2 - 0.0379) / 4 = -0.0905,
  // which leaves |0.0905| + |0.0095| * 2 + |0.1095|: 0.219 instead of 0.4.
  const std::vector<float> steps = {1.0f, 2.1f, 3.1f, 4.2f};
  const double size = 0.2;
  const double outlier = size - std::pow(size, -0.3) / 10.0;
  const double once = -(0.4 - outlier) / 4;
  EXPECT_NEAR(outlier, 0.0379, 1e-4);
  const double found = solve_hqq_zero(steps, 15, 0.0f);
  EXPECT_LE(plain_error(steps, 15, found), plain_error(steps, 15, once) + 1e-6);
  EXPECT_NEAR(found, solve_plainly(steps, 15, 0.0).zero, 1e-6);
  // Whole numbers need no other zero point, and a zero point is never made worse.
  EXPECT_EQ(solve_hqq_zero(std::vector<float>{0, 1, 2, 15}, 15, 0.0f), 0.0f);
  EXPECT_EQ(solve_hqq_zero(std::vector<float>(64, 0.0f), 7, 3.0f), 3.0f);
}

TEST(Hqq, ErrorsAreSmallerThanThoseOfRoundingToNearest) {
  for (const int bits : kHqqBits) {
    for (const int64_t group : kHqqGroups) {
      double ours = 0.0, plain = 0.0, ours_squared = 0.0, plain_squared = 0.0;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const HqqRow form{bits, group, 4096};
        const std::vector<float> numbers = heavy_tailed(4096, seed);
        const std::vector<float> made = expanded_row(form, quantized(form, numbers));
        const std::vector<float> nearest = rounded_to_nearest(form, numbers);
        ours += sum_of_errors(numbers, made, 0.7);
        plain += sum_of_errors(numbers, nearest, 0.7);
        ours_squared += sum_of_errors(numbers, made, 2.0);
        plain_squared += sum_of_errors(numbers, nearest, 2.0);
      }
      EXPECT_LT(ours, 0.98 * plain) << bits << " bits, group " << group;
      EXPECT_LT(ours_squared, 0.95 * plain_squared) << bits << " bits, group " << group;
    }
  }
}

TEST(Hqq, CodesArePackedAsWritten) {
  std::array<uint8_t, 64> codes{};
  codes[0] = 5;
  codes[32] = 9;
  codes[31] = 15;
  codes[63] = 1;
  std::array<std::byte, 32> block{};
  pack_hqq_codes(codes.data(), 4, block.data());
  EXPECT_EQ(block[0], std::byte{0x95});
  EXPECT_EQ(block[31], std::byte{0x1F});
  EXPECT_EQ(block[1], std::byte{0});
  // Three bits: columns 1, 17, 33 and 49 share a byte of lower bits.
  codes = {};
  codes[1] = 1;
  codes[17] = 6;
  codes[33] = 7;
  codes[49] = 4;
  block = {};
  pack_hqq_codes(codes.data(), 3, block.data());
  EXPECT_EQ(block[1], std::byte{0b00'11'10'01});
  EXPECT_EQ(block[16 + 2], std::byte{0b10});  // column 17
  EXPECT_EQ(block[16 + 4], std::byte{0b10});  // column 33
  EXPECT_EQ(block[16 + 6], std::byte{0b10});  // column 49
  EXPECT_EQ(block[16], std::byte{0});
  EXPECT_EQ(block[24], std::byte{0});
  for (const int bits : kHqqBits) {
    std::mt19937 random(7);
    std::array<uint8_t, 64> again{};
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (1u << bits));
    pack_hqq_codes(codes.data(), bits, block.data());
    unpack_hqq_codes(block.data(), bits, again.data());
    EXPECT_EQ(again, codes);
  }
}

TEST(Hqq, ARowByHand) {
  // Two groups of 32. The first counts up from -255 / 32 in ones: scale 1, zero point 255 / 32. The
  // second is 15 times 511 / 256, which is its scale, zero included; zero point 0. So scales are
  // 1 + b / 256 and zero points b / 32.
  const HqqRow form{4, 32, 64};
  EXPECT_EQ(form.header_bytes(), 16);
  EXPECT_EQ(form.row_bytes(), 16 + 32);
  std::vector<float> numbers(64, 15.0f * 511 / 256);
  for (size_t i = 0; i < 32; ++i) numbers[i] = static_cast<float>(i % 16) - 255.0f / 32;
  const std::vector<std::byte> row = quantized(form, numbers);
  std::array<uint16_t, 4> wide{};
  std::memcpy(wide.data(), row.data(), 8);
  EXPECT_EQ(bf16_to_float(wide[0]), 1.0f / 256);
  EXPECT_EQ(bf16_to_float(wide[1]), 1.0f);
  EXPECT_EQ(bf16_to_float(wide[2]), 1.0f / 32);
  EXPECT_EQ(bf16_to_float(wide[3]), 0.0f);
  const std::array<int, 8> bytes = {0, 255, 255, 0, 0, 0, 0, 0};  // scales, zero points, room
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(row[8 + i], static_cast<std::byte>(bytes[i])) << i;
  }
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(row[16 + i], static_cast<std::byte>(i % 16 | 15 << 4)) << i;
  }
  EXPECT_EQ(expanded_row(form, row), numbers);
}

TEST(Hqq, RowsTakeLittleMoreThanTheirCodes) {
  const auto bits_per_weight = [](int bits, int64_t group, int64_t columns) {
    return 8.0 * static_cast<double>(HqqRow{bits, group, columns}.row_bytes()) /
           static_cast<double>(columns);
  };
  EXPECT_DOUBLE_EQ(bits_per_weight(4, 64, 4096), 4.28125);
  EXPECT_DOUBLE_EQ(bits_per_weight(3, 64, 4096), 3.28125);
  EXPECT_DOUBLE_EQ(bits_per_weight(4, 64, 2048), 4.3125);
  EXPECT_NEAR(bits_per_weight(4, 64, 14336), 4.2589, 1e-4);
  EXPECT_NEAR(bits_per_weight(4, 64, 768), 4.3333, 1e-4);
  EXPECT_DOUBLE_EQ(bits_per_weight(4, 128, 4096), 4.15625);
  for (const int bits : kHqqBits) {
    for (const int64_t group : kHqqGroups) {
      const WeightFormat& format = format_of(hqq_type(bits, group));
      for (const int64_t columns : {1, 63, 64, 65, 100, 4096, 40'000}) {
        EXPECT_EQ(format.row_bytes(columns), (HqqRow{bits, group, columns}.row_bytes()));
        EXPECT_EQ(format.row_bytes(columns) % 8, 0);
      }
      EXPECT_TRUE(format.lossy && format.can_be_cut());
    }
  }
  EXPECT_THROW(hqq_type(5, 64), Error);
  EXPECT_THROW(hqq_type(4, 48), Error);
}

TEST(Hqq, AnyNumberOfColumnsComesBackAndCanBeCut) {
  for (const int bits : kHqqBits) {
    for (const int64_t group : kHqqGroups) {
      for (const int64_t columns : {1, 31, 64, 65, 100, 192, 8200}) {
        const HqqRow form{bits, group, columns};
        const std::vector<float> numbers = heavy_tailed(static_cast<size_t>(columns), 3);
        const std::vector<std::byte> row = quantized(form, numbers);
        const std::vector<float> all = expanded_row(form, row);
        for (size_t i = 0; i < numbers.size(); ++i) {
          const float scale = hqq_group(form, row.data(), static_cast<int64_t>(i) / group).scale;
          ASSERT_LE(std::fabs(numbers[i] - all[i]), 2.0f * scale + 1e-12f) << i;
        }
        const TensorView whole{
            .data = row.data(), .dtype = hqq_type(bits, group), .shape = {1, columns}};
        for (int64_t begin = 0; begin < columns; begin += kCutColumns) {
          const int64_t end = std::min(columns, begin + 64 + 7);
          const std::vector<float> part =
              testing_formats::expanded(columns_between(whole, begin, end));
          EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + begin));
        }
      }
    }
  }
}

TEST(Hqq, OddNumbers) {
  const HqqRow form{4, 64, 256};
  std::vector<float> numbers(256, 0.0f);
  EXPECT_EQ(expanded_row(form, quantized(form, numbers)), numbers);
  // A group far smaller than its neighbours, and one of a single large number.
  for (size_t i = 0; i < 64; ++i) numbers[i] = i % 2 == 0 ? 1e-9f : -1e-9f;
  numbers[200] = 100.0f;
  std::vector<float> again = expanded_row(form, quantized(form, numbers));
  for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(again[i], 0.0f, 1e-3) << i;
  EXPECT_NEAR(again[200], 100.0f, 1.0f);
  // Numbers at the ends of the range of floats.
  for (const float size : {1e-45f, 1e-38f, 1e30f, 3.4e38f}) {
    for (size_t i = 0; i < 256; ++i) numbers[i] = i % 3 == 0 ? size : -size;
    for (const float number : expanded_row(form, quantized(form, numbers))) {
      EXPECT_TRUE(std::isfinite(number)) << size;
    }
  }
  std::vector<std::byte> row(static_cast<size_t>(form.row_bytes()));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    numbers[77] = bad;
    EXPECT_FALSE(quantize_hqq_row(form, numbers.data(), row.data()));
  }
}

// The weights' size does not change what is stored of them but for the scales.
TEST(Hqq, TwiceTheWeightsHaveTheSameCodes) {
  const HqqRow form{3, 64, 1024};
  std::vector<float> numbers = heavy_tailed(1024, 5);
  const std::vector<float> once = expanded_row(form, quantized(form, numbers));
  for (float& number : numbers) number *= 4.0f;
  const std::vector<float> again = expanded_row(form, quantized(form, numbers));
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(again[i], 4.0f * once[i]);
}

TEST(Hqq, NothingOutsideARowOfAnyBytesIsRead) {
  std::mt19937_64 random(11);
  for (const int bits : kHqqBits) {
    for (const int64_t group : kHqqGroups) {
      for (const int64_t columns : {1, 64, 200, 5000}) {
        const HqqRow form{bits, group, columns};
        // As long as the row: a sanitizer notices what is read beyond it.
        std::vector<std::byte> row(static_cast<size_t>(form.row_bytes()));
        for (std::byte& byte : row) byte = static_cast<std::byte>(random());
        EXPECT_EQ(expanded_row(form, row).size(), static_cast<size_t>(columns));
        std::fill(row.begin(), row.end(), std::byte{0xFF});
        EXPECT_EQ(expanded_row(form, row).size(), static_cast<size_t>(columns));
      }
    }
  }
}

// The bytes of one row, so that a change of what is made of equal numbers is noticed.
TEST(Hqq, EqualNumbersBecomeEqualBytesEverywhere) {
  std::vector<float> numbers(512);
  uint32_t state = 1;
  for (float& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<float>(static_cast<int32_t>(state) >> 8) * 0x1p-24f;
    number = number * number * number;
  }
  const auto hash = [&](int bits, int64_t group) {
    uint64_t sum = 14695981039346656037u;
    for (const std::byte byte : quantized({bits, group, 512}, numbers)) {
      sum = (sum ^ std::to_integer<uint64_t>(byte)) * 1099511628211u;
    }
    return sum;
  };
  EXPECT_EQ(hash(4, 64), 6402278711660666977u);
  EXPECT_EQ(hash(3, 64), 14796021012045705845u);
}

}  // namespace
}  // namespace klotski
