#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/testing.h"
#include "tensor/compact.h"
#include "tensor/half.h"

namespace klotski {
namespace {

using GpuExpand = GpuTest;

constexpr int64_t kRows = 9;  // short rows are expanded eight to a block
constexpr int64_t kWidths[] = {64, 100, 192, 1000, 4096, 14336};

// Some that follow each other, and some that do not.
std::vector<int64_t> strides_of(int64_t columns) {
  return {compact_row_bytes(columns), compact_row_bytes(columns) + 48};
}

std::vector<uint16_t> expanded_here(const TensorView& weight) {
  const auto columns = static_cast<size_t>(weight.columns());
  std::vector<uint16_t> out(static_cast<size_t>(weight.rows()) * columns);
  for (int64_t r = 0; r < weight.rows(); ++r) {
    expand_row(weight.data + r * weight.stride(), weight.columns_of_row(), weight.first_column,
               std::span(out).subspan(static_cast<size_t>(r) * columns, columns));
  }
  return out;
}

// The matrix expanded to memory from number `before` on; fails where numbers around it were
// written.
std::vector<uint16_t> expanded_there(const TensorView& weight, size_t before) {
  constexpr size_t kBehind = 64;
  const auto count = static_cast<size_t>(weight.rows() * weight.columns());
  const DeviceArray<uint16_t> out(before + count + kBehind);
  const auto& processor = static_cast<const cuda::CudaProcessor&>(gpu_processor());
  cuda::expand(processor.context(), reinterpret_cast<__nv_bfloat16*>(out.data() + before), weight);
  const std::vector<uint16_t> all = out.download();
  const auto untouched = [](uint16_t bits) { return bits == 0xFFFF; };
  const auto begin = all.begin() + static_cast<ptrdiff_t>(before);
  const auto end = begin + static_cast<ptrdiff_t>(count);
  EXPECT_TRUE(std::all_of(all.begin(), begin, untouched)) << "written before the output";
  EXPECT_TRUE(std::all_of(end, all.end(), untouched)) << "written behind the output";
  return {begin, end};
}

// The whole matrix of these bytes and parts of it.
void check_matrix(std::span<const std::byte> bytes, int64_t columns, int64_t stride) {
  const DeviceArray<std::byte> device(bytes);
  TensorView whole = {bytes.data(), kCompactType, {kRows, columns}};
  whole.row_stride = stride;
  const int64_t middle = columns / 2 / kCompactBlock * kCompactBlock;
  const int64_t last = (columns - 1) / kCompactBlock * kCompactBlock;
  for (const TensorView& here :
       {whole, rows_between(whole, 1, kRows - 1), columns_between(whole, 0, columns - 17),
        columns_between(whole, middle, columns), columns_between(whole, last, columns),
        columns_between(rows_between(whole, 2, 5), middle, columns - 8)}) {
    TensorView there = here;
    there.data = device.data() + (here.data - bytes.data());
    for (const size_t before : {64, 63}) {
      EXPECT_EQ(expanded_there(there, before), expanded_here(here))
          << columns << " columns " << stride << " apart, " << here.columns() << " from "
          << here.first_column << " on, to " << before;
    }
  }
}

// Normal weights, and some that have to be listed.
std::vector<uint16_t> row_of(int64_t columns, std::mt19937& random) {
  std::normal_distribution<float> weights(0.0f, 0.02f);
  std::vector<uint16_t> row(static_cast<size_t>(columns));
  for (uint16_t& bits : row) bits = float_to_bf16(weights(random));
  for (const float odd : {0.0f, -3e5f, std::numeric_limits<float>::infinity()}) {
    row[random() % row.size()] = float_to_bf16(odd);
  }
  row.back() = 0xFF81;  // NaN
  return row;
}

TEST_F(GpuExpand, EveryBitIsTheOneOnTheCpu) {
  std::mt19937 random(1);
  for (const int64_t columns : kWidths) {
    for (const int64_t stride : strides_of(columns)) {
      std::vector<std::byte> bytes(static_cast<size_t>(kRows * stride), std::byte{0xFF});
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_TRUE(compact_row(row_of(columns, random), bytes.data() + r * stride));
      }
      check_matrix(bytes, columns, stride);
    }
  }
}

TEST_F(GpuExpand, WrongBytesAreReadWithinTheirRowsAndAlike) {
  std::mt19937 random(2);
  for (const int64_t columns : kWidths) {
    for (const int64_t stride : strides_of(columns)) {
      std::vector<std::byte> bytes(static_cast<size_t>(kRows * stride));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      check_matrix(bytes, columns, stride);
      // Lists of many numbers, most of them in the row and some more than once.
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 1; i <= most_compact_listed(columns); ++i) {
          const auto column = static_cast<uint16_t>(random() % static_cast<unsigned>(columns + 9));
          const auto repeated = static_cast<uint16_t>(column / 8 * 8);
          std::memcpy(bytes.data() + r * stride + 4 * i, &repeated, sizeof(repeated));
        }
      }
      check_matrix(bytes, columns, stride);
    }
  }
}

TEST_F(GpuExpand, NothingIsNoWork) {
  const DeviceArray<std::byte> bytes(static_cast<size_t>(compact_row_bytes(64)));
  EXPECT_TRUE(expanded_there({bytes.data(), kCompactType, {0, 64}}, 64).empty());
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
