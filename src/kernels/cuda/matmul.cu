#include <algorithm>
#include <span>
#include <type_traits>

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/few_outputs_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/piece_rows.h"
#include "kernels/cuda/products_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "tensor/format.h"

namespace klotski::cuda {

namespace {

constexpr int64_t kPieceRows = 4096;   // rows at a time: the scratch stays small
constexpr int kMostParts = 3;          // 8 bits of the fraction each: all of a float32's
constexpr int64_t kStackedRows = 128;  // with more, arithmetic takes the time, not the weights

// Each number as a sum of numbers that Stored can hold, the largest first, `stride` apart.
template <typename Stored, int kParts>
__global__ void split(Stored* parts, int64_t stride, const float* in, int64_t count, bool aligned) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    Floats rest = load(in + i, count - i, aligned);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      store(parts + part * stride + i, rest, count - i, true);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float taken = to_float(rounded_to<Stored>(rest.values[k]));
        // The remainder of an infinity would be a NaN.
        const bool finite = isfinite(taken) && isfinite(rest.values[k]);
        rest.values[k] = finite ? rest.values[k] - taken : 0.0f;
      }
    }
  }
}

template <typename Stored>
void launch_split(const Context& with, Stored* out, ConstRows in, int parts) {
  const int64_t count = in.count * in.width;
  const unsigned blocks = striding_blocks((count + kVector - 1) / kVector);
  const auto kernel = parts == 1   ? split<Stored, 1>
                      : parts == 2 ? split<Stored, 2>
                                   : split<Stored, kMostParts>;
  kernel<<<blocks, kThreads, 0, with.stream>>>(out, part_stride(count), in.data, count,
                                               is_aligned(in.data));
  check_launch("split");
}

// out = the sum of `parts` arrays of `count` numbers, one after the other.
__global__ void add_parts(float* out, const float* sums, int64_t count, int parts, bool aligned) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    Floats sum = load(sums + i, count - i, aligned);
    for (int part = 1; part < parts; ++part) {
      const Floats next = load(sums + part * count + i, count - i, aligned);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum.values[k] += next.values[k];
    }
    store(out + i, sum, count - i, aligned);
  }
}

void launch_add_parts(const Context& with, Rows out, const float* sums, int parts) {
  const int64_t count = out.count * out.width;
  const bool aligned = is_aligned(out.data) && is_aligned(sums) && count % kVector == 0;
  add_parts<<<striding_blocks((count + kVector - 1) / kVector), kThreads, 0, with.stream>>>(
      out.data, sums, count, parts, aligned);
  check_launch("add_parts");
}

// A product with 16-bit weights; each input is the sum of `parts` numbers of their type. Parts of
// few rows are more rows of one product, added up at the end: the weights are read once for all.
template <typename Stored>
void multiply_parts(const Context& with, Rows out, ConstRows in, const TensorView& weight,
                    int parts) {
  const int64_t count = in.count * in.width;
  const int64_t stride = part_stride(count);
  const Scratch scratch(with, static_cast<uint64_t>(stride * parts) * sizeof(Stored));
  launch_split(with, scratch.as<Stored>(), in, parts);
  const int64_t sum_bytes = parts * in.count * out.width * static_cast<int64_t>(sizeof(float));
  const bool stacked =
      parts > 1 && parts * in.count <= kStackedRows && stride == count && sum_bytes <= kSumBytes;
  const Scratch sums(with, stacked ? static_cast<uint64_t>(sum_bytes) : 0);
  if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
    const FormatKernel* format = format_kernel(weight.dtype);
    const int64_t rows = parts * in.count;
    if (format && (stacked || parts == 1) && rows <= format->most_few_rows(with, weight)) {
      const RowsProduct<Stored> product = {stacked ? sums.as<float>() : out.data,
                                              scratch.as<Stored>(), rows, weight};
      format->few_rows(with, std::span(&product, 1));
      if (stacked) launch_add_parts(with, out, sums.as<float>(), parts);
      return;
    }
  }
  for_each_slab(with, weight, false, [&](const TensorView& slab, int64_t first_output) {
    const auto multiply = [&](float* to, int64_t part, int64_t rows, float beta) {
      with.cublas->multiply({.out = to + first_output,
                             .in = scratch.as<Stored>() + part * stride,
                             .weight = slab.data,
                             .type = slab.dtype == DType::BF16 ? CUDA_R_16BF : CUDA_R_16F,
                             .rows = rows,
                             .out_width = slab.rows(),
                             .in_width = in.width,
                             .out_stride = out.width,
                             .beta = beta});
    };
    if (stacked) return multiply(sums.as<float>(), 0, parts * in.count, 0.0f);
    for (int part = 0; part < parts; ++part) {
      multiply(out.data, part, in.count, part == 0 ? 0.0f : 1.0f);
    }
  });
  if (stacked) launch_add_parts(with, out, sums.as<float>(), parts);
}

template <typename Stored>
__global__ void convert(float* out, const Stored* in, int64_t count, bool aligned) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    store(out + i, load(in + i, count - i, aligned), count - i, true);
  }
}

// Output columns from first_output on, as many as `weight`, which is float32, has rows.
void multiply_floats(const Context& with, Rows out, ConstRows in, const float* weight,
                     int64_t first_output, int64_t outputs) {
  with.cublas->multiply({.out = out.data + first_output,
                         .in = in.data,
                         .weight = weight,
                         .rows = in.count,
                         .out_width = outputs,
                         .in_width = in.width,
                         .out_stride = out.width});
}

// No sum of few F16 numbers is any float32: the weights are converted instead, a slab at a time.
void multiply_converted(const Context& with, Rows out, ConstRows in, const TensorView& weight) {
  const int64_t most = std::max<int64_t>(kSlabBytes / (4 * std::max<int64_t>(in.width, 1)), 1);
  const int64_t slab_rows = std::min(most, out.width);
  const Scratch slab(with, static_cast<uint64_t>(slab_rows * in.width) * sizeof(float));
  const auto* stored = reinterpret_cast<const __half*>(weight.data);
  for (int64_t first = 0; first < out.width; first += slab_rows) {
    const int64_t rows = std::min(slab_rows, out.width - first);
    const int64_t count = rows * in.width;
    const __half* from = stored + first * in.width;
    convert_to_floats(with, slab.as<float>(), from, count);
    multiply_floats(with, out, in, slab.as<float>(), first, rows);
  }
}

bool is_plain_16_bits(DType type) { return type == DType::BF16 || type == DType::F16; }

// Inputs of few rows are rounded where they are multiplied, if at all: those of quantised blocks are
// not, since that costs nothing.
void multiply(const Context& with, Rows out, ConstRows in, const TensorView& weight,
              Precision precision) {
  const bool exact = precision == Precision::f32;
  const int parts = parts_of(precision);
  const FormatKernel* format = format_kernel(weight.dtype);
  const RowsProduct<float> few = {out.data, in.data, in.count, weight};
  if (format && in.count <= (exact ? format->most_few_float_rows : format->most_free_float_rows)) {
    format->few_float_rows(with, std::span(&few, 1));
  } else if (is_plain_16_bits(weight.dtype) && in.count <= most_few_plain_rows(weight)) {
    few_plain_rows<float>(with, std::span(&few, 1), parts > 1);
  } else if (weight.dtype == DType::F32 || (exact && format && format->expand_floats)) {
    for_each_slab(with, weight, exact, [&](const TensorView& slab, int64_t first) {
      multiply_floats(with, out, in, reinterpret_cast<const float*>(slab.data), first, slab.rows());
    });
  } else if (is_multiplied_as_bf16(weight.dtype)) {
    multiply_parts<__nv_bfloat16>(with, out, in, weight, parts);
  } else if (weight.dtype == DType::F16 && exact) {
    multiply_converted(with, out, in, weight);
  } else if (weight.dtype == DType::F16) {
    multiply_parts<__half>(with, out, in, weight, parts);
  } else {
    fail(ErrorKind::internal, "weights of type {} reached a kernel", dtype_name(weight.dtype));
  }
}

template <typename Stored>
__global__ void add_bias_to_each(float* out, const Stored* bias, int64_t count, int64_t width) {
  for (int64_t i = global_thread(); i < count; i += all_threads()) {
    out[i] += to_float(bias[i % width]);
  }
}

}  // namespace

void add_bias(const Context& with, Rows out, const TensorView& bias) {
  const int64_t count = out.count * out.width;
  with_stored_type(bias.dtype, [&](auto type) {
    using Stored = decltype(type);
    add_bias_to_each<<<striding_blocks(count), kThreads, 0, with.stream>>>(
        out.data, reinterpret_cast<const Stored*>(bias.data), count, out.width);
  });
  check_launch("add_bias_to_each");
}

int parts_of(Precision precision) {
  return precision == Precision::f32 ? kMostParts : precision == Precision::two_bf16 ? 2 : 1;
}

void split_inputs(const Context& with, __nv_bfloat16* out, ConstRows in, int parts) {
  launch_split(with, out, in, parts);
}

void convert_to_floats(const Context& with, float* out, const __half* in, int64_t count) {
  convert<<<striding_blocks((count + kVector - 1) / kVector), kThreads, 0, with.stream>>>(
      out, in, count, is_aligned(in));
  check_launch("convert");
}

void CudaProcessor::matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
                           Precision precision) const {
  check_no_gaps(weight);
  const Context& with = context();
  if (out.count == 0 || out.width == 0) return;
  const bool one_slab = !is_packed(weight.dtype) || 4 * out.width * in.width <= kSlabBytes;
  if (precision == Precision::f32 && out.width <= kFewOutputs && one_slab) {
    for_each_slab(with, weight, true,
                  [&](const TensorView& slab, int64_t) { few_outputs(with, out, in, slab); });
  } else {
    const int64_t rows = piece_rows(out.count, kPieceRows);
    for (int64_t first = 0; first < out.count; first += rows) {
      const int64_t count = std::min(rows, out.count - first);
      multiply(with, {out.row(first), count, out.width}, {in.row(first), count, in.width}, weight,
               precision);
    }
  }
  if (bias.data) add_bias(with, out, bias);
}

uint64_t matmul_scratch_bytes(int64_t rows, int64_t in_width) {
  const int64_t piece = part_stride(piece_rows(rows, kPieceRows) * in_width);
  const int64_t slab = std::max(kSlabBytes, 4 * kSlabStep * in_width);
  return static_cast<uint64_t>(piece * kMostParts * 2 + slab + kSumBytes + 4 * in_width);
}

}  // namespace klotski::cuda
