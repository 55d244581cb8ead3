#include "kernels/cuda/few_rows_cuda.h"

#include <cuda_fp16.h>

#include "kernels/cuda/compact_cuda.h"

namespace klotski::cuda {

namespace {

__device__ __forceinline__ float lower_number(unsigned two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float upper_number(unsigned two) {
  return __uint_as_float(two & 0xFFFF0000u);
}

// Rows of multiply_few_rows. A listed number is first multiplied as its four bits say, which is
// taken back when its turn comes: an infinite input then gives NaN.
class CompactNumbers {
 public:
  __device__ CompactNumbers(const CompactMatrix& matrix, int64_t row)
      : row_(matrix, row), columns_(matrix.columns) {}

  __device__ __forceinline__ Floats eight(unsigned column) const {
    const Packed<unsigned> twos = row_.eight(column);
    Floats numbers;
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) {
      numbers.values[2 * i] = lower_number(twos.values[i]);
      numbers.values[2 * i + 1] = upper_number(twos.values[i]);
    }
    return numbers;
  }

  // Calls replace(column, number, number that was multiplied) for listed numbers.
  template <typename Replace>
  __device__ __forceinline__ void correct(unsigned lane, const Replace& replace) const {
    for (unsigned i = lane; i < row_.listed(); i += kWarp) {
      const unsigned at = row_.listed_at(i);
      if (at >= columns_) continue;
      const unsigned two = row_.eight(at / kVector * kVector).values[at % kVector / 2];
      const float taken = at % 2 == 0 ? lower_number(two) : upper_number(two);
      replace(at, __uint_as_float(unsigned{row_.listed_number(i)} << 16), taken);
    }
  }

 private:
  CompactRow row_;
  unsigned columns_;
};

struct CompactWeight : CompactMatrix {
  static constexpr int kRounds = 4;
  static constexpr int kRoundsOfOneRow = 4;

  CompactWeight() = default;
  explicit CompactWeight(const TensorView& weight) : CompactMatrix(weight) {}
  __device__ __forceinline__ CompactNumbers row(int64_t i) const { return {*this, i}; }
};

template <typename Stored>
struct PlainNumbers {
  const Stored* numbers;
  unsigned columns;
  bool aligned;

  __device__ __forceinline__ Floats eight(unsigned column) const {
    return load(numbers + column, columns - column, aligned);
  }
  template <typename Replace>
  __device__ __forceinline__ void correct(unsigned, const Replace&) const {}
};

template <typename Stored>
struct PlainWeight {
  // With one row there is little else to do while numbers are read.
  static constexpr int kRounds = 4;
  static constexpr int kRoundsOfOneRow = 8;

  const Stored* data = nullptr;
  int64_t rows = 0;
  unsigned columns = 0;
  bool aligned = false;

  PlainWeight() = default;
  explicit PlainWeight(const TensorView& weight)
      : data(reinterpret_cast<const Stored*>(weight.data)),
        rows(weight.rows()),
        columns(static_cast<unsigned>(weight.columns())),
        aligned(rows_aligned(weight.data, weight.columns())) {}
  __device__ __forceinline__ PlainNumbers<Stored> row(int64_t i) const {
    return {data + i * columns, columns, aligned};
  }
};

template <typename Stored, typename In>
void few_rows_of(const Context& with, std::span<const RowsProduct<In>> products, bool exact) {
  const auto matrix = [](const TensorView& weight) { return PlainWeight<Stored>(weight); };
  if constexpr (std::is_same_v<In, float>) {
    if (exact) return multiply_few<float>(with, products, matrix);
  }
  multiply_few<Stored>(with, products, matrix);
}

}  // namespace

void few_compact_rows(const Context& with,
                      std::span<const RowsProduct<__nv_bfloat16>> products) {
  multiply_few<__nv_bfloat16>(
      with, products, [](const TensorView& weight) { return CompactWeight(weight); });
}

template <typename In>
void few_plain_rows(const Context& with, std::span<const RowsProduct<In>> products, bool exact) {
  if (products.empty()) return;
  if constexpr (!std::is_same_v<In, float>) {
    few_rows_of<In>(with, products, exact);
  } else if (products.front().weight.dtype == DType::BF16) {
    few_rows_of<__nv_bfloat16>(with, products, exact);
  } else {
    few_rows_of<__half>(with, products, exact);
  }
}

template void few_plain_rows(const Context&, std::span<const RowsProduct<float>>, bool);
template void few_plain_rows(const Context&, std::span<const RowsProduct<__half>>, bool);
template void few_plain_rows(const Context&, std::span<const RowsProduct<__nv_bfloat16>>, bool);

}  // namespace klotski::cuda
