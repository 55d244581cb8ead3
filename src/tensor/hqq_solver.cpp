// HQQ's way from numbers to codes. Only additions, products, quotients and moves of bits, in one
// order: every machine makes the same bytes of the same numbers.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/half.h"
#include "tensor/hqq.h"

namespace klotski {

namespace {

constexpr int kRounds = 20;
constexpr float kFirstBeta = 10.0f;    // weight of the quadratic term
constexpr float kBetaGrowth = 1.01f;   // a round
constexpr float kNormExponent = 0.7f;  // p of the l_p norm

// The nearest whole number, ties to even, of a number less than 2^22 in size.
float nearest_whole(float value) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: floats of this size are whole numbers
  return (value + kMagic) - kMagic;
}

// value^(kNormExponent - 1) = 2^(-0.3 log2(value)), to about 1e-6 of it. The value is split into
// 2^e and m from sqrt(1/2) to sqrt(2); log2(m) is the series of 2 artanh((m - 1) / (m + 1)) / ln 2.
// Zero gives a large number.
float shrinking_power(float value) {
  constexpr int32_t kRootOfHalf = 0x3F3504F3;
  const auto bits = std::bit_cast<int32_t>(value);
  const int32_t exponent = (bits - kRootOfHalf) >> 23;
  const float m = std::bit_cast<float>(bits - exponent * (1 << 23));
  const float t = (m - 1.0f) / (m + 1.0f);
  const float t2 = t * t;
  const float log_m =
      t * (2.88539008f + t2 * (0.961796694f + t2 * (0.577078016f + t2 * 0.4121986f)));
  const float y = (kNormExponent - 1.0f) * (static_cast<float>(exponent) + log_m);
  const float whole = nearest_whole(y);
  const float f = (y - whole) * 0.693147181f;  // ln 2: e^f by its series
  const float power =
      1.0f +
      f * (1.0f + f * (0.5f + f * (1.0f / 6 + f * (1.0f / 24 + f * (1.0f / 120 + f / 720)))));
  return power * std::bit_cast<float>((static_cast<int32_t>(whole) + 127) * (1 << 23));
}

float code_of_step(float step, float most, float zero) {
  return nearest_whole(std::min(std::max(step + zero, 0.0f), most));
}

// The sum of numbers, eight sums side by side for vector instructions.
float sum_of(std::span<const float> numbers) {
  std::array<float, 8> sums{};
  for (size_t at = 0; at < numbers.size(); ++at) sums[at % sums.size()] += numbers[at];
  float all = 0.0f;
  for (const float sum : sums) all += sum;
  return all;
}

// One round of solving, from the weights of a group to the numbers that are summed: the absolute
// error of each weight, and the zero point that would suit it, its outlier taken off.
struct HqqRound {
  std::vector<float> errors;
  std::vector<float> zeros;

  void run(std::span<const float> steps, float most, float zero, float beta) {
    errors.resize(steps.size());
    zeros.resize(steps.size());
    float* const errors_out = errors.data();
    float* const zeros_out = zeros.data();
    const float over_beta = 1.0f / beta;
    for (size_t i = 0; i < steps.size(); ++i) {
      const float code = code_of_step(steps[i], most, zero);
      const float error = steps[i] - (code - zero);
      const float size = std::fabs(error);
      const float outlier = std::max(size - shrinking_power(size) * over_beta, 0.0f);
      errors_out[i] = size;
      zeros_out[i] = (code - steps[i]) + std::copysign(outlier, error);
    }
  }
};

// The BF16 number next to `value` that is not above it.
uint16_t bf16_at_most(float value) {
  const uint16_t bits = float_to_bf16(value);
  if (bf16_to_float(bits) <= value) return bits;
  return static_cast<uint16_t>(value < 0.0f ? bits + 1 : bits - 1);
}

uint16_t bf16_at_least(float value) {
  return static_cast<uint16_t>(bf16_at_most(-value) ^ 0x8000u);
}

// How numbers become bytes: as the nearest, or as the next above it where the nearest is less than
// nine tenths of the number. Scales far too small would cut their weights off.
enum class Rounding { nearest, not_far_below };

void put_number(std::byte* at, uint16_t bits) { std::memcpy(at, &bits, sizeof(bits)); }

// Stores numbers of a wide group in eight bits each: step and least at `wide`, the bytes at
// `codes`.
void quantize_wide_group(std::span<const float> numbers, Rounding rounding, std::byte* wide,
                         std::byte* codes) {
  constexpr float kMostByte = 255.0f;
  const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  const uint16_t least_bits = bf16_at_most(*low);
  const float least = bf16_to_float(least_bits);
  const uint16_t step_bits = bf16_at_least((*high - least) / kMostByte);
  const float step = bf16_to_float(step_bits);
  put_number(wide, step_bits);
  put_number(wide + 2, least_bits);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float exact = step > 0.0f ? (numbers[i] - least) / step : 0.0f;
    float code = nearest_whole(std::min(std::max(exact, 0.0f), kMostByte));
    const bool far_below = least + step * code < 0.9f * numbers[i];
    if (rounding == Rounding::not_far_below && far_below && code < kMostByte) code += 1.0f;
    codes[i] = static_cast<std::byte>(code);
  }
}

void quantize_wide_groups(const std::vector<float>& numbers, Rounding rounding, std::byte* wide,
                          std::byte* codes) {
  constexpr auto kWide = static_cast<size_t>(kHqqWideGroup);
  for (size_t begin = 0; begin < numbers.size(); begin += kWide) {
    quantize_wide_group(std::span(numbers).subspan(begin, std::min(kWide, numbers.size() - begin)),
                        rounding, wide + begin / kWide * 8, codes + begin);
  }
}

// The scale with which codes reach from the least to the largest number of a group, and zero: so
// zero points lie among the codes and differ little.
float range_scale(std::span<const float> numbers, float most) {
  float low = 0.0f;
  float high = 0.0f;
  for (const float number : numbers) {
    low = std::min(low, number);
    high = std::max(high, number);
  }
  return high / most - low / most;
}

// The numbers of one group in units of its scale; all zero where the scale is.
std::span<const float> in_steps(std::span<const float> numbers, float scale,
                                std::vector<float>& steps) {
  steps.assign(numbers.size(), 0.0f);
  if (scale > 0.0f) {
    for (size_t i = 0; i < numbers.size(); ++i) steps[i] = numbers[i] / scale;
  }
  return steps;
}

}  // namespace

float solve_hqq_zero(std::span<const float> steps, int most_code, float zero) {
  const auto most = static_cast<float>(most_code);
  float best = zero;
  float least_error = std::numeric_limits<float>::infinity();
  float beta = kFirstBeta;
  HqqRound round;
  for (int i = 0; i <= kRounds; ++i) {
    round.run(steps, most, zero, beta);
    const float error = sum_of(round.errors);
    if (!(error < least_error)) break;
    least_error = error;
    best = zero;
    zero = sum_of(round.zeros) / static_cast<float>(steps.size());
    beta *= kBetaGrowth;
  }
  return best;
}

bool quantize_hqq_row(const HqqRow& form, const float* numbers, std::byte* row) {
  const std::span<const float> all(numbers, static_cast<size_t>(form.columns));
  if (!std::all_of(all.begin(), all.end(), [](float number) { return std::isfinite(number); })) {
    return false;
  }
  std::memset(row, 0, static_cast<size_t>(form.row_bytes()));
  const auto most = static_cast<float>(form.most_code());
  const auto numbers_of = [&](int64_t group) {
    const int64_t begin = group * form.group;
    return all.subspan(static_cast<size_t>(begin),
                       static_cast<size_t>(std::min(form.group, form.columns - begin)));
  };
  std::vector<float> parameters;  // of each group: its scale, later its zero point
  for (int64_t g = 0; g < form.groups(); ++g)
    parameters.push_back(range_scale(numbers_of(g), most));
  quantize_wide_groups(parameters, Rounding::not_far_below, row, row + form.scales_at());

  std::vector<float> steps;
  for (int64_t g = 0; g < form.groups(); ++g) {
    in_steps(numbers_of(g), hqq_group(form, row, g).scale, steps);
    const float zero = std::max(0.0f, -*std::min_element(steps.begin(), steps.end()));
    parameters[static_cast<size_t>(g)] = solve_hqq_zero(steps, form.most_code(), zero);
  }
  quantize_wide_groups(parameters, Rounding::nearest, row + 4, row + form.zeros_at());

  std::vector<uint8_t> codes;
  for (int64_t g = 0; g < form.groups(); ++g) {
    const HqqGroup group = hqq_group(form, row, g);
    for (const float step : in_steps(numbers_of(g), group.scale, steps)) {
      codes.push_back(static_cast<uint8_t>(code_of_step(step, most, group.zero)));
    }
  }
  codes.resize(static_cast<size_t>((form.columns + kHqqBlock - 1) / kHqqBlock * kHqqBlock));
  std::byte* block = row + form.header_bytes();
  for (size_t at = 0; at < codes.size(); at += kHqqBlock, block += form.block_bytes()) {
    pack_hqq_codes(&codes[at], form.bits, block);
  }
  return true;
}

}  // namespace klotski
