// Stands in for the operations on a device where there is no CUDA to compile them with.

#include "base/error.h"
#include "kernels/cuda_ops.h"

namespace klotski {

struct CudaOps::State {};

CudaOps::CudaOps(Device&, std::span<std::byte>) {
  fail(ErrorKind::device_unavailable,
       "this klotski was built without CUDA; build it with the preset cuda to use a device");
}

CudaOps::~CudaOps() = default;

const Ops& CudaOps::table() {
  fail(ErrorKind::internal, "operations on a device that were never opened");
}

}  // namespace klotski
