// The exponential function, through the softmax and the gates that are made of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/testing.h"

namespace klotski {
namespace {

// e^x of all of them, through the softmax relative to a score of 0 that came before.
std::vector<float> exponentials(const cpu::Kernels& kernels, std::vector<float> x) {
  cpu::SoftmaxState state = {.largest = 0.0f, .sum = 0.0f};
  const auto count = static_cast<int64_t>(x.size());
  EXPECT_EQ(kernels.softmax({x.data(), count, {0, 0}, {count, 0}, 1.0f}, state), 1.0f);
  return x;
}

TEST(CpuExponential, TheExponentialIsAccurate) {
  std::vector<float> x = {0.0f, -0.0f, -1e-40f, -1e-10f, -87.3365f, -87.34f, -1e30f, -kInfinity};
  for (int i = 1; i <= 300'000; ++i) x.push_back(static_cast<float>(i) * (-87.33f / 300'000));
  for (const cpu::Kernels* kernels : every_kernels()) {
    const std::vector<float> found = exponentials(*kernels, x);
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(double(x[i]));
      if (exact < std::numeric_limits<float>::min()) {
        ASSERT_EQ(found[i], 0.0f) << x[i];
      } else {
        worst = std::max(worst, std::fabs(found[i] - exact) / exact);
      }
    }
    EXPECT_LT(worst, 3e-7) << kernels->name;
    EXPECT_TRUE(std::isnan(exponentials(*kernels, {kPoison})[0]));
  }
}

TEST(CpuExponential, SoftmaxTakesScoresInPieces) {
  const std::vector<float> scores = random_floats(60, 1);
  const auto seen = [](int64_t p) { return (p >= 3 && p < 9) || (p >= 20 && p < 51); };
  double sum = 0.0;
  for (int64_t p = 0; p < 60; ++p) sum += seen(p) ? std::exp(10.0 * scores[size_t(p)]) : 0.0;
  for (const cpu::Kernels* kernels : every_kernels()) {
    for (const int64_t piece : {1, 7, 16, 19, 60}) {
      cpu::SoftmaxState state = {.largest = -kInfinity, .sum = 0.0f};
      std::vector<float> shares = scores;
      for (int64_t first = 0; first < 60; first += piece) {
        const int64_t count = std::min<int64_t>(piece, 60 - first);
        const auto at = [&](int64_t p) { return std::clamp<int64_t>(p - first, 0, count); };
        const float factor = kernels->softmax(
            {shares.data() + first, count, {at(3), at(20)}, {at(9), at(51)}, 10.0f}, state);
        kernels->scale(shares.data(), first, factor);
      }
      for (int64_t p = 0; p < 60; ++p) {
        const double exact = seen(p) ? std::exp(10.0 * scores[size_t(p)]) / sum : 0.0;
        EXPECT_NEAR(shares[size_t(p)] / state.sum, exact, 2e-6) << p << " by " << piece;
      }
    }
  }
}

float gated(const cpu::Kernels& kernels, cpu::GateFunction function, float x) {
  const float up = 1.0f;
  kernels.gate(&x, &up, 1, function);
  return x;
}

TEST(CpuExponential, GatesAreAccurate) {
  std::vector<float> x;
  for (int i = -50'000; i <= 50'000; ++i) x.push_back(static_cast<float>(i) * (80.0f / 50'000));
  const std::vector<float> up = random_floats(static_cast<int64_t>(x.size()), 1);
  for (const cpu::Kernels* kernels : every_kernels()) {
    for (const auto function :
         {cpu::GateFunction::silu, cpu::GateFunction::gelu_tanh, cpu::GateFunction::relu}) {
      std::vector<float> found = x;
      kernels->gate(found.data(), up.data(), static_cast<int64_t>(x.size()), function);
      for (size_t i = 0; i < x.size(); ++i) {
        const double v = x[i];
        // gelu's argument has an error of its own, which the exponential multiplies.
        const double u = function == cpu::GateFunction::silu
                             ? v
                             : 2.0 * std::sqrt(2.0 / std::acos(-1.0)) * (v + 0.044715 * v * v * v);
        const double exact =
            (function == cpu::GateFunction::relu ? std::max(v, 0.0) : v / (1.0 + std::exp(-u))) *
            double(up[i]);
        const double argument = function == cpu::GateFunction::gelu_tanh ? std::fabs(u) : 0.0;
        ASSERT_LE(std::fabs(found[i] - exact), (5e-7 + 3e-7 * argument) * std::fabs(exact) + 1e-36)
            << kernels->name << " of " << v;
      }
    }
  }
}

TEST(CpuExponential, ClampedSwigluIsThatOfTheReference) {
  std::vector<float> gates = {0.0f,  -0.0f,     100.0f, -100.0f, 0.7f,
                              -0.7f, kInfinity, 1.0f,   1.0f,    1.0f};
  std::vector<float> ups = {1.0f,  1.0f, 0.5f,      0.5f,       3.0f,
                            -3.0f, 0.0f, kInfinity, -kInfinity, -1.0f};
  for (int i = 0; i < 40; ++i) {
    gates.push_back(static_cast<float>(i - 20) * 0.21f);
    ups.push_back(static_cast<float>((7 * i) % 40 - 20) * 0.13f);
  }
  std::vector<float> expected = gates;
  const auto count = static_cast<int64_t>(gates.size());
  const ClampedSwiglu rule{1.702f, 2.0f};
  reference::gate({expected.data(), 1, count}, {ups.data(), 1, count}, Activation::clamped_swiglu,
                  rule);
  for (const cpu::Kernels* kernels : every_kernels()) {
    SCOPED_TRACE(kernels->name);
    std::vector<float> found = gates;
    kernels->clamped_swiglu(found.data(), ups.data(), count, rule.slope, rule.limit);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-6f * (1.0f + std::fabs(expected[i]))) << "number " << i;
    }
    for (const size_t bad : {0u, 1u}) {
      float gate = bad == 0 ? kPoison : 1.0f;
      const float up = bad == 1 ? kPoison : 1.0f;
      kernels->clamped_swiglu(&gate, &up, 1, rule.slope, rule.limit);
      EXPECT_TRUE(std::isnan(gate));
    }
  }
}

TEST(CpuExponential, GatesOfExtremesAreThoseOfTheReference) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const cpu::Kernels* kernels : every_kernels()) {
    SCOPED_TRACE(kernels->name);
    for (const auto function : {cpu::GateFunction::silu, cpu::GateFunction::gelu_tanh}) {
      for (const float x : {100.0f, 1e10f, kLargest, kInfinity}) {
        EXPECT_EQ(gated(*kernels, function, x), x);
        const float opposite = gated(*kernels, function, -x);
        // Minus infinity times nothing: there is no answer, and no number is made up.
        EXPECT_TRUE(x < kInfinity ? opposite == 0.0f : std::isnan(opposite)) << x;
      }
      EXPECT_TRUE(std::isnan(gated(*kernels, function, kPoison)));
    }
    EXPECT_EQ(gated(*kernels, cpu::GateFunction::relu, kInfinity), kInfinity);
    EXPECT_EQ(gated(*kernels, cpu::GateFunction::relu, -kInfinity), 0.0f);
    EXPECT_TRUE(std::isnan(gated(*kernels, cpu::GateFunction::relu, kPoison)));
  }
}

TEST(CpuExponential, GatesAndScalesTouchNothingElse) {
  for (const cpu::Kernels* kernels : every_kernels()) {
    for (int64_t count = 0; count <= 40; ++count) {
      const std::vector<float> values = random_floats(count, 1);
      Output out(1, count);
      std::copy(values.begin(), values.end(), out.rows().data);
      kernels->gate(out.rows().data, values.data(), count, cpu::GateFunction::silu);
      kernels->scale(out.rows().data, count, 3.0f);
      EXPECT_TRUE(out.guards_are_whole());
      for (size_t i = 0; i < values.size(); ++i) {
        const float once = gated(*kernels, cpu::GateFunction::silu, values[i]);
        EXPECT_EQ(out.values()[i], once * values[i] * 3.0f) << kernels->name << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace klotski
