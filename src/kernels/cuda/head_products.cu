#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/products_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

namespace {

// Numbers of every head that follow its products unchanged.
struct KeptNumbers {
  float* out;
  const float* in;
  int64_t heads;  // of all tokens
  int64_t kept;
  int64_t out_dim;  // numbers of an output head, the last `kept` of which are copied
  int64_t in_dim;
};

__global__ void copy_kept(KeptNumbers task) {
  for (int64_t i = global_thread(); i < task.heads * task.kept; i += all_threads()) {
    const int64_t head = i / task.kept;
    const int64_t at = i % task.kept;
    task.out[(head + 1) * task.out_dim - task.kept + at] =
        task.in[(head + 1) * task.in_dim - task.kept + at];
  }
}

void launch_copy_kept(const Context& with, const HeadProducts& products) {
  const KeptNumbers task = {products.out.data,
                            products.in.data,
                            products.in.count * products.heads,
                            products.kept(),
                            products.out.width / products.heads,
                            products.in.width / products.heads};
  if (task.kept == 0) return;
  copy_kept<<<striding_blocks(task.heads * task.kept), kThreads, 0, with.stream>>>(task);
  check_launch("copy_kept");
}

// The weights of some heads as numbers of one type.
struct HeadSlab {
  const void* weight;
  cudaDataType type;
  int64_t first_head;
  int64_t heads;
};

// Whether weights are multiplied as float32 numbers: F16 numbers are, and those of packed formats
// that BF16 cannot hold where inputs are not rounded either.
bool multiplies_floats(const HeadProducts& products) {
  const DType type = products.weight.dtype;
  const FormatKernel* format = format_kernel(type);
  return type == DType::F32 || type == DType::F16 ||
         (format && format->expand_floats && products.precision == Precision::f32);
}

// Calls function(slab) for the weights of some heads after the other: packed formats are expanded
// and F16 numbers converted, at most kSlabBytes at a time; any other matrix is a single slab.
template <typename Function>
void for_each_head_slab(const Context& with, const HeadProducts& products,
                        const Function& function) {
  const TensorView& weight = products.weight;
  const FormatKernel* format = format_kernel(weight.dtype);
  const bool floats = multiplies_floats(products);
  const cudaDataType type = floats ? CUDA_R_32F : CUDA_R_16BF;
  if (!format && weight.dtype != DType::F16) {
    return function(HeadSlab{weight.data, type, 0, products.heads});
  }
  const int64_t numbers = products.head_rows() * weight.columns();
  const int64_t head_bytes = numbers * (floats ? 4 : 2);
  const int64_t together =
      std::clamp<int64_t>(kSlabBytes / std::max<int64_t>(head_bytes, 1), 1, products.heads);
  const Scratch slab(with, static_cast<uint64_t>(together * head_bytes));
  for (int64_t first = 0; first < products.heads; first += together) {
    const int64_t heads = std::min(together, products.heads - first);
    const int64_t rows = products.head_rows();
    const TensorView part = rows_between(weight, first * rows, (first + heads) * rows);
    if (format && floats) {
      format->expand_floats(with, slab.as<float>(), part);
    } else if (format) {
      format->expand(with, slab.as<__nv_bfloat16>(), part);
    } else {
      convert_to_floats(with, slab.as<float>(), reinterpret_cast<const __half*>(part.data),
                        heads * numbers);
    }
    function(HeadSlab{slab.as<void>(), type, first, heads});
  }
}

HeadMatrices matrices_of(const HeadProducts& products, const HeadSlab& slab) {
  const int64_t columns = products.weight.columns();
  const int64_t element = slab.type == CUDA_R_32F ? 4 : 2;
  return {
      .out = products.out_head(0, slab.first_head),
      .in = products.in_head(0, slab.first_head),
      .weight = static_cast<const std::byte*>(slab.weight) + products.first_row * columns * element,
      .type = slab.type,
      .transposed = products.transposed,
      .heads = slab.heads,
      .rows = products.in.count,
      .out_width = products.outputs(),
      .in_width = products.inputs(),
      .out_stride = products.out.width,
      .in_stride = products.in.width,
      .weight_stride = columns,
      .out_step = products.out.width / products.heads,
      .in_step = products.in.width / products.heads,
      .weight_step = products.head_rows() * columns};
}

// Tokens whose inputs fit the scratch of these products.
void multiply(const Context& with, const HeadProducts& products, int parts) {
  const int64_t stride = part_stride(products.in.count * products.in.width);
  const bool floats = multiplies_floats(products);
  const Scratch inputs(with,
                       floats ? 0 : static_cast<uint64_t>(stride * parts) * sizeof(__nv_bfloat16));
  if (!floats) split_inputs(with, inputs.as<__nv_bfloat16>(), products.in, parts);
  for_each_head_slab(with, products, [&](const HeadSlab& slab) {
    HeadMatrices matrices = matrices_of(products, slab);
    if (floats) return with.cublas->multiply_heads(matrices);
    const int64_t first = products.in_head(0, slab.first_head) - products.in.data;
    for (int part = 0; part < parts; ++part) {
      matrices.in = inputs.as<__nv_bfloat16>() + part * stride + first;
      matrices.beta = part == 0 ? 0.0f : 1.0f;
      with.cublas->multiply_heads(matrices);
    }
  });
}

}  // namespace

void CudaProcessor::matmul_by_head(const HeadProducts& products) const {
  check_no_gaps(products.weight);
  const Context& with = context();
  const int64_t tokens = products.in.count;
  if (tokens == 0) return;
  launch_copy_kept(with, products);
  const int parts = parts_of(products.precision);
  const int64_t token_bytes = products.in.width * parts * int64_t{sizeof(__nv_bfloat16)};
  const int64_t together = std::clamp<int64_t>(kSumBytes / token_bytes, 1, tokens);
  for (int64_t first = 0; first < tokens; first += together) {
    const int64_t count = std::min(together, tokens - first);
    HeadProducts piece = products;
    piece.out = {products.out.row(first), count, products.out.width};
    piece.in = {products.in.row(first), count, products.in.width};
    multiply(with, piece, parts);
  }
}

}  // namespace klotski::cuda
