#pragma once

#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace klotski::cuda {

// out[r][n] = beta * out[r][n] + sum over k of in[r][k] * weight[n][k], summed in float32.
struct MatrixProduct {
  void* out = nullptr;  // rows out_stride elements apart
  const void* in = nullptr;
  const void* weight = nullptr;
  cudaDataType type = CUDA_R_32F;  // type of in and weight
  int64_t rows = 0;
  int64_t out_width = 0;
  int64_t in_width = 0;
  int64_t out_stride = 0;
  float beta = 0.0f;
};

// Products of several matrices, one for each head: out[r][n] = beta * out[r][n] + sum over k of
// in[r][k] * weight[n][k], or of in[r][k] * weight[k][n] where transposed. Strides are the numbers
// from one row to the next, steps from one head to the next.
struct HeadMatrices {
  void* out = nullptr;
  const void* in = nullptr;
  const void* weight = nullptr;
  cudaDataType type = CUDA_R_32F;  // type of in and weight
  bool transposed = false;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t out_width = 0;
  int64_t in_width = 0;
  int64_t out_stride = 0;
  int64_t in_stride = 0;
  int64_t weight_stride = 0;
  int64_t out_step = 0;
  int64_t in_step = 0;
  int64_t weight_step = 0;
  float beta = 0.0f;
};

// NVIDIA's matrix products, from a library that is looked for when the program runs, so that one
// binary serves machines without it.
class Cublas {
 public:
  // Products run on the stream; products that need memory use the workspace. Throws
  // device_unavailable where the library is missing.
  Cublas(cudaStream_t stream, std::span<std::byte> workspace);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  void multiply(const MatrixProduct& product) const;
  void multiply_heads(const HeadMatrices& product) const;

 private:
  // The functions by the names that the library exports.
  struct Library {
    Library();
    void check(cublasStatus_t status, const char* call) const;

    decltype(&cublasCreate_v2) create;
    decltype(&cublasDestroy_v2) destroy;
    decltype(&cublasSetStream_v2) set_stream;
    decltype(&cublasSetWorkspace_v2) set_workspace;
    decltype(&cublasSetMathMode) set_math_mode;
    decltype(&cublasGemmEx_64) multiply;
    decltype(&cublasGemmStridedBatchedEx_64) multiply_heads;
    decltype(&cublasGetStatusString) status_string;
  };

  Library library_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace klotski::cuda
