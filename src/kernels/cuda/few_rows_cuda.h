#pragma once

// Products of few rows by weights where they lie. A warp computes an output, and one launch
// computes many products: with one row a launch takes about as long as reading a small expert.

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

// Up to this number of rows, a warp an output is faster than the library's products, and than
// expanding packed weights first.
inline constexpr int64_t kFewRows = 4;

// Plain weights of up to this number of bytes are read faster by few_plain_rows than by the
// library's products: of 3 MB they were, of 117 MB a tenth slower; the limit between is a guess.
inline constexpr int64_t kMostPlainBytes = int64_t{16} << 20;

// Rows up to which few_plain_rows is the faster product with plain 16-bit weights.
inline int64_t most_few_plain_rows(const TensorView& weight) {
  const bool is_small = weight.rows() * weight.stride() <= kMostPlainBytes;
  return is_small ? kFewRows : 0;
}

// As many products as a kernel's parameters hold, 48 at most.
template <typename Task>
inline constexpr int kProductsOfLaunch = std::min<int>(48, 4096 / sizeof(Task));

template <typename Task>
struct LaunchedTasks {
  Task tasks[kProductsOfLaunch<Task>];
};

// Launches products together that kernels for at most kBound rows compute, for each bound in turn
// the products with more rows than the bound before it. `task(product)` describes a product to the
// kernel, `launch(bound, tasks, count, most_outputs)` starts it.
template <int... kBounds, typename Product, typename MakeTask, typename Launch>
void launch_by_rows(std::span<const Product> products, const MakeTask& task, const Launch& launch) {
  using Task = decltype(task(products.front()));
  constexpr int64_t kMost = std::max({kBounds...});
  for (const Product& product : products) {
    if (product.rows < 1 || product.rows > kMost) {
      fail(ErrorKind::internal, "a product of {} rows reached kernels of at most {}", product.rows,
           kMost);
    }
  }
  int64_t below = 0;
  const auto those_within = [&](auto bound) {
    LaunchedTasks<Task> launched = {};
    int count = 0;
    int64_t most_outputs = 0;
    const auto flush = [&] {
      if (count > 0 && most_outputs > 0) launch(bound, launched, count, most_outputs);
      count = 0;
      most_outputs = 0;
    };
    for (const Product& product : products) {
      if (product.rows <= below || product.rows > bound) continue;
      launched.tasks[count++] = task(product);
      most_outputs = std::max(most_outputs, product.weight.rows());
      if (count == kProductsOfLaunch<Task>) flush();
    }
    flush();
    below = bound;
  };
  (those_within(std::integral_constant<int, kBounds>()), ...);
}

// `Weight` is a matrix whose rows give eight neighbouring numbers at a time, and which says how
// many times eight are read together (PlainWeight, few_rows.cu).
template <typename Weight, typename In>
struct FewRowsTask {
  float* out = nullptr;
  const In* in = nullptr;
  Weight weight = {};
  int rows = 0;
  bool aligned = false;  // each row of in is aligned
};

// An input as it is multiplied: rounded to Multiplied.
template <typename Multiplied, typename In>
__device__ __forceinline__ float multiplied_input(float value) {
  if constexpr (std::is_same_v<Multiplied, In>) return value;
  return to_float(rounded_to<Multiplied>(value));
}

// Lanes take eight neighbouring products in turn and their sums are added pairwise. Rows beyond the
// last repeat the last one and are not written.
template <typename Multiplied, int kRows, typename Weight, typename In>
__global__ void multiply_few_rows(
    const __grid_constant__ LaunchedTasks<FewRowsTask<Weight, In>> launched) {
  constexpr int kRounds = kRows == 1 ? Weight::kRoundsOfOneRow : Weight::kRounds;
  const FewRowsTask<Weight, In>& task = launched.tasks[blockIdx.y];
  const int64_t output = global_thread() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (output >= task.weight.rows) return;
  const unsigned columns = task.weight.columns;
  const auto weight = task.weight.row(output);
  const auto row = [&](int r) { return task.in + int64_t{min(r, task.rows - 1)} * columns; };

  float sums[kRows] = {};
#pragma unroll kRounds
  for (unsigned k = lane * kVector; k < columns; k += kWarp * kVector) {
    const Floats numbers = weight.eight(k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Floats in = load(row(r) + k, columns - k, task.aligned);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float input = multiplied_input<Multiplied, In>(in.values[i]);
        sums[r] = fmaf(input, numbers.values[i], sums[r]);
      }
    }
  }
  weight.correct(lane, [&](unsigned at, float number, float taken) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float in = multiplied_input<Multiplied, In>(to_float(row(r)[at]));
      sums[r] = fmaf(in, number, fmaf(in, -taken, sums[r]));
    }
  });
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && r < task.rows) task.out[r * task.weight.rows + output] = sum;
  }
}

// Products with weights that `matrix(view)` describes; inputs are rounded to Multiplied.
template <typename Multiplied, typename In, typename Matrix>
void multiply_few(const Context& with, std::span<const RowsProduct<In>> products,
                  const Matrix& matrix) {
  using Weight = decltype(matrix(products.front().weight));
  const auto task = [&](const RowsProduct<In>& product) {
    return FewRowsTask<Weight, In>{product.out, product.in, matrix(product.weight),
                                   static_cast<int>(product.rows),
                                   rows_aligned(product.in, product.weight.columns())};
  };
  launch_by_rows<1, 2, kFewRows>(
      products, task, [&](auto bound, const auto& tasks, int count, int64_t outputs) {
        const dim3 grid(blocks_of(outputs, kThreads / kWarp), static_cast<unsigned>(count));
        multiply_few_rows<Multiplied, bound.value, Weight, In>
            <<<grid, kThreads, 0, with.stream>>>(tasks);
        check_launch("multiply_few_rows");
      });
}

// FormatKernel::few_rows of compact rows; 1 to kFewRows rows.
void few_compact_rows(const Context& with, std::span<const RowsProduct<__nv_bfloat16>> products);

// Products with weights of one 16-bit type and 1 to kFewRows rows. `In` is the weights' type, or
// float: such rows are rounded to the weights' type unless `exact`.
template <typename In>
void few_plain_rows(const Context& with, std::span<const RowsProduct<In>> products, bool exact);

}  // namespace klotski::cuda
