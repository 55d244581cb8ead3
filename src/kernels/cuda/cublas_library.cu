#include <dlfcn.h>

#include "base/error.h"
#include "device/cuda_call_cuda.h"
#include "kernels/cuda/cublas_cuda.h"

namespace klotski::cuda {

namespace {

// The library stays open for the rest of the process: the driver cannot forget it.
void* open_library() {
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  fail(ErrorKind::device_unavailable,
       "the device needs cuBLAS, and libcublas.so.13 (or .12) was not found: install it (package "
       "libcublas-13-0 of CUDA 13) or name its folder in LD_LIBRARY_PATH");
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) {
    fail(ErrorKind::device_unavailable,
         "libcublas has no {}: install cuBLAS of CUDA 12 or 13 in its place", name);
  }
}

}  // namespace

Cublas::Library::Library() {
  void* library = open_library();
  find(library, "cublasCreate_v2", create);
  find(library, "cublasDestroy_v2", destroy);
  find(library, "cublasSetStream_v2", set_stream);
  find(library, "cublasSetWorkspace_v2", set_workspace);
  find(library, "cublasSetMathMode", set_math_mode);
  find(library, "cublasGemmEx_64", multiply);
  find(library, "cublasGemmStridedBatchedEx_64", multiply_heads);
  find(library, "cublasGetStatusString", status_string);
}

void Cublas::Library::check(cublasStatus_t status, const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check_cuda(cudaGetLastError(), call);  // a device that is lost says so itself
  fail(ErrorKind::device_unavailable, "the device refused a product: {} says {}", call,
       status_string(status));
}

Cublas::Cublas(cudaStream_t stream, std::span<std::byte> workspace) {
  library_.check(library_.create(&handle_), "cublasCreate");
  try {
    library_.check(library_.set_stream(handle_, stream), "cublasSetStream");
    // Set after the stream, since setting the stream resets the workspace.
    library_.check(library_.set_workspace(handle_, workspace.data(), workspace.size()),
                   "cublasSetWorkspace");
    // Partial sums stay float32 where the output is not.
    library_.check(
        library_.set_math_mode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "cublasSetMathMode");
  } catch (...) {
    library_.destroy(handle_);
    throw;
  }
}

Cublas::~Cublas() { library_.destroy(handle_); }

void Cublas::multiply(const MatrixProduct& product) const {
  const float one = 1.0f;
  // The library counts in columns: its matrices are ours transposed.
  library_.check(
      library_.multiply(handle_, CUBLAS_OP_T, CUBLAS_OP_N, product.out_width, product.rows,
                        product.in_width, &one, product.weight, product.type, product.in_width,
                        product.in, product.type, product.in_width, &product.beta, product.out,
                        CUDA_R_32F, product.out_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "cublasGemmEx");
}

void Cublas::multiply_heads(const HeadMatrices& product) const {
  const float one = 1.0f;
  library_.check(
      library_.multiply_heads(
          handle_, product.transposed ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, product.out_width,
          product.rows, product.in_width, &one, product.weight, product.type, product.weight_stride,
          product.weight_step, product.in, product.type, product.in_stride, product.in_step,
          &product.beta, product.out, CUDA_R_32F, product.out_stride, product.out_step,
          product.heads, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "cublasGemmStridedBatchedEx");
}

}  // namespace klotski::cuda
