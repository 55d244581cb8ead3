#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/experts_testing.h"
#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuExperts = GpuTest;

struct Types {
  DType first;   // gate and up
  DType second;  // down
};

// Weights whose products keep about the size of their inputs.
std::vector<float> scaled_floats(int64_t rows, int64_t columns, unsigned seed) {
  std::vector<float> values = random_floats(rows * columns, seed);
  for (float& value : values) value /= std::sqrt(static_cast<float>(columns));
  return values;
}

struct TestExpert {
  TestExpert(const ExpertShape& s, const Types& types, unsigned seed)
      : gate(scaled_floats(s.width, s.in, seed), types.first, {s.width, s.in}),
        up(scaled_floats(s.width, s.in, seed + 1), types.first, {s.width, s.in}),
        down(scaled_floats(s.out, s.width, seed + 2), types.second, {s.out, s.width}),
        biases(s, is_packed(types.second) ? DType::BF16 : types.second, seed + 3),
        device_gate(gate),
        device_up(up),
        device_down(down),
        device_gate_bias(biases.gate),
        device_up_bias(biases.up),
        device_down_bias(biases.down) {}

  // Gives the expert's products biases and a clamped activation.
  void add_biases(ExpertProduct& here, ExpertProduct& there) const {
    for (ExpertProduct* product : {&here, &there}) {
      product->activation = Activation::clamped_swiglu;
      product->swiglu = {1.5f, 0.6f};
    }
    here.gate_bias = biases.gate.view;
    here.up_bias = biases.up.view;
    here.down_bias = biases.down.view;
    there.gate_bias = device_gate_bias.view();
    there.up_bias = device_up_bias.view();
    there.down_bias = device_down_bias.view();
  }

  // The expert's product of rows in the program's memory, and of rows on the device.
  ExpertProduct here(const ExpertProduct& rows) const {
    return with(rows, gate.view, up.view, down.view);
  }
  ExpertProduct there(const ExpertProduct& rows) const {
    return with(rows, device_gate.view(), device_up.view(), device_down.view());
  }

  static ExpertProduct with(ExpertProduct rows, const TensorView& g, const TensorView& u,
                            const TensorView& d) {
    rows.gate = g;
    rows.up = u;
    rows.down = d;
    return rows;
  }

  Weights gate, up, down;
  ExpertBiases biases;
  DeviceTensor device_gate, device_up, device_down;
  DeviceTensor device_gate_bias, device_up_bias, device_down_bias;
};

// Rows and lists of a product that has no weights yet.
ExpertProduct rows_of(Rows out, ConstRows in, std::span<const int32_t> out_rows = {},
                      std::span<const int32_t> in_rows = {},
                      Activation activation = Activation::silu) {
  return {out, in, out_rows, in_rows, {}, {}, {}, activation};
}

std::vector<int32_t> shuffled(int64_t count, unsigned seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

// |found - expected| / |expected| over all elements; elements that nobody wrote must be so in both.
double relative_error(std::span<const float> found, std::span<const float> expected) {
  double difference = 0.0;
  double size = 0.0;
  EXPECT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << "element " << i;
    if (std::isnan(expected[i])) continue;
    difference +=
        (double(found[i]) - double(expected[i])) * (double(found[i]) - double(expected[i]));
    size += double(expected[i]) * double(expected[i]);
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

double tolerance(const Types& types, Precision precision) {
  if (precision == Precision::f32) return 3e-5;
  if (types.first == DType::F32 && types.second == DType::F32) return 3e-5;
  return 1e-2;  // the reference rounds less: neither gate and up, nor anything for F16
}

struct Case {
  ExpertShape shape;
  Types types;
  Precision precision;
  Activation activation = Activation::silu;
  bool biased = false;  // with biases, a clamped activation and scaled inputs
  bool gated = true;    // false: without an up, with biases
};

// Checks experts with `rows` rows each, which they take from and put to places in no order. Returns
// the device's results.
std::vector<float> check_scattered(const Processor& ops, const Case& given,
                                   const std::vector<int64_t>& rows) {
  SCOPED_TRACE(std::string(dtype_name(given.types.first)) + " " +
               std::string(dtype_name(given.types.second)) + " precision " +
               std::to_string(static_cast<int>(given.precision)));
  const ExpertShape& shape = given.shape;
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t places = total + 5;
  const std::vector<float> in = random_floats(places * shape.in, 1);
  const std::vector<int32_t> in_rows = shuffled(places, 2);
  const std::vector<int32_t> out_rows = shuffled(places, 3);
  const DeviceArray<float> device_in{std::span<const float>(in)};
  const DeviceArray<int32_t> device_in_rows{std::span<const int32_t>(in_rows)};
  const DeviceArray<int32_t> device_out_rows{std::span<const int32_t>(out_rows)};
  const std::vector<float> scales = random_floats(total, 4);
  const DeviceArray<float> device_scales{std::span<const float>(scales)};
  const DeviceOutput device_out(places, shape.out);
  std::vector<float> out(static_cast<size_t>(places * shape.out), kPoison);

  std::vector<TestExpert> experts;
  experts.reserve(rows.size());
  std::vector<ExpertProduct> here;
  std::vector<ExpertProduct> there;
  size_t first = 0;
  for (size_t e = 0; e < rows.size(); ++e) {
    const auto count = static_cast<size_t>(rows[e]);
    if (count == 0) continue;
    experts.emplace_back(shape, given.types, static_cast<unsigned>(10 * e + 10));
    here.push_back(
        experts.back().here(rows_of({out.data(), places, shape.out}, {in.data(), places, shape.in},
                                    std::span(out_rows).subspan(first, count),
                                    std::span(in_rows).subspan(first, count), given.activation)));
    there.push_back(experts.back().there(
        rows_of(device_out.rows(), {device_in.data(), places, shape.in},
                device_out_rows.span().subspan(first, count),
                device_in_rows.span().subspan(first, count), given.activation)));
    if (given.biased) {
      experts.back().add_biases(here.back(), there.back());
      here.back().in_scales = std::span(scales).subspan(first, count);
      there.back().in_scales = device_scales.span().subspan(first, count);
    }
    if (!given.gated) {
      experts.back().add_biases(here.back(), there.back());
      for (ExpertProduct* product : {&here.back(), &there.back()}) {
        product->activation = given.activation;
        product->up = {};
        product->up_bias = {};
      }
    }
    first += count;
  }
  reference_processor().experts(here, given.precision);
  ops.experts(there, given.precision);
  const std::vector<float> once = device_out.download();
  EXPECT_LE(relative_error(once, out), tolerance(given.types, given.precision));
  ops.experts(there, given.precision);
  EXPECT_TRUE(same_bits(device_out.download(), once));
  return once;
}

TEST_F(GpuExperts, BiasesScalesAndClampedGatesAgreeWithTheReference) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
      check_scattered(ops(), {{72, 133, 40}, {type, type}, precision, Activation::silu, true},
                      {1, 5, 40, 0, 3});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuExperts, WithoutAnUpAgreeWithTheReference) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
      Case given{{72, 133, 40}, {type, type}, precision, Activation::relu};
      given.gated = false;
      check_scattered(ops(), given, {1, 5, 40, 0, 3});
      if (HasFatalFailure()) return;
    }
  }
}

// Rows without lists, as dense parts have them.
TEST_F(GpuExperts, BiasesOfRowsInPlace) {
  constexpr ExpertShape kShape = {64, 96, 48};
  constexpr int64_t kRows = 9;
  const TestExpert expert(kShape, {DType::BF16, DType::BF16}, 5);
  const std::vector<float> in = random_floats(kRows * kShape.in, 6);
  std::vector<float> out(static_cast<size_t>(kRows * kShape.out), kPoison);
  const DeviceArray<float> device_in{std::span<const float>(in)};
  const DeviceOutput device_out(kRows, kShape.out);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    ExpertProduct here =
        expert.here(rows_of({out.data(), kRows, kShape.out}, {in.data(), kRows, kShape.in}));
    ExpertProduct there =
        expert.there(rows_of(device_out.rows(), {device_in.data(), kRows, kShape.in}));
    expert.add_biases(here, there);
    reference_processor().experts(std::span(&here, 1), precision);
    ops().experts(std::span(&there, 1), precision);
    EXPECT_LT(relative_error(device_out.download(), out),
              precision == Precision::f32 ? 3e-5 : 1e-2);
  }
}

TEST_F(GpuExperts, EveryTypeAndPrecision) {
  const Types all_types[] = {{DType::BF16, DType::BF16}, {DType::F16, DType::F16},
                             {DType::F32, DType::F32},   {DType::BF16, DType::F16},
                             {DType::F16, DType::F32},   {DType::F32, DType::BF16}};
  for (const ExpertShape& shape : {ExpertShape{72, 88, 72}, ExpertShape{5, 7, 3}}) {
    for (const Types& types : all_types) {
      for (const Precision precision : kPrecisions) {
        check_scattered(ops(), {shape, types, precision}, {1, 7, 40, 2});
      }
    }
  }
}

TEST_F(GpuExperts, CompactWeightsGiveTheSameBits) {
  const DType compact = kCompactType;
  for (const ExpertShape& shape :
       {ExpertShape{72, 88, 72}, ExpertShape{5, 7, 3}, ExpertShape{264, 192, 1000}}) {
    for (const Precision precision : kPrecisions) {
      const std::vector<int64_t> rows = {5, 40, 16};
      const std::vector<float> plain =
          check_scattered(ops(), {shape, {DType::BF16, DType::BF16}, precision}, rows);
      for (const Types& types :
           {Types{compact, compact}, Types{DType::BF16, compact}, Types{compact, DType::BF16}}) {
        EXPECT_TRUE(same_bits(check_scattered(ops(), {shape, types, precision}, rows), plain));
      }
    }
  }
}

TEST_F(GpuExperts, CompactWeightsAndFewRows) {
  const Types types = {kCompactType, kCompactType};
  for (const ExpertShape& shape :
       {ExpertShape{72, 88, 72}, {5, 7, 3}, {264, 192, 1000}, {1000, 1700, 333}}) {
    for (int64_t rows = 1; rows <= 9; ++rows) {
      check_scattered(ops(), {shape, types, Precision::bf16}, {rows, 1});
    }
  }
}

// Zeros and outliers, which rows list.
TEST_F(GpuExperts, ListedNumbersOfCompactWeights) {
  constexpr ExpertShape kShape = {256, 192, 128};
  const auto odd_weights = [](int64_t rows, int64_t columns, unsigned seed) {
    std::vector<float> values = scaled_floats(rows, columns, seed);
    for (int64_t row = 0; row < rows; ++row) {
      values[static_cast<size_t>(row * columns + row % columns)] = 0.0f;
      values[static_cast<size_t>(row * columns + (7 * row + 3) % columns)] = -0.0f;
      if (row % 16 == 0) values[static_cast<size_t>((row + 1) * columns - 1)] = 1e-12f;
    }
    return Weights(values, kCompactType, {rows, columns});
  };
  const Weights gate = odd_weights(kShape.width, kShape.in, 4);
  const Weights up = odd_weights(kShape.width, kShape.in, 5);
  const Weights down = odd_weights(kShape.out, kShape.width, 6);
  const DeviceTensor device_gate(gate);
  const DeviceTensor device_up(up);
  const DeviceTensor device_down(down);
  for (const int64_t rows : {1, 2, 3, 8, 20}) {
    const std::vector<float> in = random_floats(rows * kShape.in, 2);
    const DeviceArray<float> device_in{std::span<const float>(in)};
    const DeviceOutput device_out(rows, kShape.out);
    std::vector<float> out(static_cast<size_t>(rows * kShape.out), kPoison);
    const ExpertProduct here =
        TestExpert::with(rows_of({out.data(), rows, kShape.out}, {in.data(), rows, kShape.in}),
                         gate.view, up.view, down.view);
    const ExpertProduct there =
        TestExpert::with(rows_of(device_out.rows(), {device_in.data(), rows, kShape.in}),
                         device_gate.view(), device_up.view(), device_down.view());
    reference_processor().experts(std::span(&here, 1), Precision::bf16);
    ops().experts(std::span(&there, 1), Precision::bf16);
    EXPECT_LE(relative_error(device_out.download(), out),
              tolerance({kCompactType, kCompactType}, Precision::bf16))
        << rows << " rows";
  }
}

TEST_F(GpuExperts, LargeCompactWeightsAreMultipliedInSlabs) {
  const DType compact = kCompactType;
  for (const Precision precision : kPrecisions) {
    // Each matrix expanded is more than one slab.
    check_scattered(ops(), {{4096, 5120, 4096}, {compact, compact}, precision}, {9});
  }
}

TEST_F(GpuExperts, PartsOfCompactExperts) {
  const Types types = {kCompactType, kCompactType};
  const TestExpert expert({128, 192, 64}, types, 1);
  const auto part = [](ExpertProduct product) {
    product.gate = rows_between(product.gate, 64, 164);
    product.up = rows_between(product.up, 64, 164);
    product.down = columns_between(product.down, 64, 164);
    return product;
  };
  const std::vector<float> in = random_floats(3 * 128, 2);
  const DeviceArray<float> device_in{std::span<const float>(in)};
  for (const Precision precision : kPrecisions) {
    const DeviceOutput device_out(3, 64);
    std::vector<float> out(3 * 64, kPoison);
    const ExpertProduct here = part(expert.here(rows_of({out.data(), 3, 64}, {in.data(), 3, 128})));
    const ExpertProduct there =
        part(expert.there(rows_of(device_out.rows(), {device_in.data(), 3, 128})));
    reference_processor().experts(std::span(&here, 1), precision);
    ops().experts(std::span(&there, 1), precision);
    EXPECT_LE(relative_error(device_out.download(), out), tolerance(types, precision));
  }
}

TEST_F(GpuExperts, EveryActivation) {
  for (const Activation activation :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    for (const DType type : kStoredTypes) {
      for (const Precision precision : kPrecisions) {
        check_scattered(ops(), {{64, 48, 64}, {type, type}, precision, activation}, {9, 3});
      }
    }
  }
}

TEST_F(GpuExperts, ManyRowsAreDividedIntoPieces) {
  for (const Precision precision : kPrecisions) {
    for (const DType type : {DType::BF16, kCompactType}) {
      check_scattered(ops(), {{128, 80, 128}, {type, type}, precision},
                      {2049, 1, 1500, 700, 4100, 3});
      check_scattered(ops(), {{128, 80, 128}, {type, DType::BF16}, precision}, {1025, 16});
    }
  }
}

// One expert each of a number of rows that is rounded up as far as any, and some that are not.
TEST_F(GpuExperts, PaddingReachesNoResult) {
  for (const DType type : {DType::BF16, DType::F16}) {
    check_scattered(ops(), {{40, 24, 32}, {type, type}, Precision::bf16},
                    {3, 5, 9, 8, 17, 65, 129, 64, 257, 513, 1023, 1024, 1025});
  }
}

TEST_F(GpuExperts, ManyExpertsOfFewRows) {
  std::vector<int64_t> rows(300);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i % 5);
  check_scattered(ops(), {{32, 24, 32}, {DType::BF16, DType::BF16}, Precision::bf16}, rows);
}

// Neither list: all rows in their order.
TEST_F(GpuExperts, RowsInOrderGoStraightToTheirPlace) {
  const ExpertShape shape = {40, 24, 16};
  for (const int64_t rows : {1, 2100}) {
    for (const Precision precision : kPrecisions) {
      const std::vector<float> in = random_floats(rows * shape.in, 1);
      const DeviceArray<float> device_in{std::span<const float>(in)};
      const DeviceOutput device_out(rows, shape.out);
      std::vector<float> out(static_cast<size_t>(rows * shape.out), kPoison);
      const TestExpert expert(shape, {DType::BF16, DType::BF16}, 4);
      const ExpertProduct here =
          expert.here(rows_of({out.data(), rows, shape.out}, {in.data(), rows, shape.in}));
      const ExpertProduct there =
          expert.there(rows_of(device_out.rows(), {device_in.data(), rows, shape.in}));
      reference_processor().experts(std::span(&here, 1), precision);
      ops().experts(std::span(&there, 1), precision);
      EXPECT_LE(relative_error(device_out.download(), out),
                tolerance({DType::BF16, DType::BF16}, precision));
    }
  }
}

// Products of different shapes, types and lists in one call.
TEST_F(GpuExperts, ProductsNeedNotBeAlike) {
  const std::vector<float> in = random_floats(6 * 16, 1);
  const DeviceArray<float> device_in{std::span<const float>(in)};
  const std::vector<int32_t> list = {4, 1, 5};
  const DeviceArray<int32_t> device_list{std::span<const int32_t>(list)};
  constexpr size_t kExperts = 5;
  std::vector<TestExpert> experts;
  experts.reserve(kExperts);
  experts.emplace_back(ExpertShape{16, 8, 16}, Types{DType::BF16, DType::BF16}, 1);
  experts.emplace_back(ExpertShape{16, 24, 16}, Types{DType::BF16, DType::BF16}, 4);
  experts.emplace_back(ExpertShape{16, 24, 16}, Types{kCompactType, DType::BF16}, 13);
  experts.emplace_back(ExpertShape{16, 24, 16}, Types{DType::F16, DType::F16}, 7);
  experts.emplace_back(ExpertShape{16, 24, 16}, Types{DType::F32, DType::F32}, 10);
  std::vector<std::vector<float>> outs(kExperts, std::vector<float>(6 * 16, kPoison));
  std::vector<DeviceOutput> device_outs;
  device_outs.reserve(kExperts);
  std::vector<ExpertProduct> here;
  std::vector<ExpertProduct> there;
  for (size_t e = 0; e < kExperts; ++e) {
    device_outs.emplace_back(6, 16);
    const auto listed = std::span(list).first(e % 2 == 0 ? 3 : 0);
    const auto device_listed = device_list.span().first(listed.size());
    here.push_back(experts[e].here(
        rows_of({outs[e].data(), 6, 16}, {in.data(), 6, 16}, listed, listed, Activation::gelu)));
    there.push_back(experts[e].there(rows_of(device_outs[e].rows(), {device_in.data(), 6, 16},
                                             device_listed, device_listed, Activation::gelu)));
  }
  reference_processor().experts(here, Precision::bf16);
  ops().experts(there, Precision::bf16);
  for (size_t e = 0; e < kExperts; ++e)
    EXPECT_LE(relative_error(device_outs[e].download(), outs[e]), 1e-2);
}

TEST_F(GpuExperts, WeightsWithGapsAreRefused) {
  const TestExpert expert({8, 8, 8}, {DType::BF16, DType::BF16}, 1);
  const DeviceArray<float> in{std::span<const float>(random_floats(8, 2))};
  const DeviceOutput out(1, 8);
  ExpertProduct product = expert.there(rows_of(out.rows(), {in.data(), 1, 8}));
  product.gate = rows_between(product.gate, 0, 4);
  product.up = rows_between(product.up, 0, 4);
  product.down = columns_between(product.down, 0, 4);
  for (const Precision precision : kPrecisions) {
    EXPECT_THROW(ops().experts(std::span(&product, 1), precision), Error);
    EXPECT_THROW(ops().matmul(out.rows(), {in.data(), 1, 4}, product.down, {}, precision), Error);
  }
}

TEST_F(GpuExperts, NothingToDoIsDone) {
  ops().experts({}, Precision::bf16);
  const TestExpert expert({8, 8, 8}, {DType::BF16, DType::BF16}, 1);
  const ExpertProduct none = expert.there(rows_of({nullptr, 0, 8}, {nullptr, 0, 8}));
  for (const Precision precision : kPrecisions) ops().experts(std::span(&none, 1), precision);
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
