// Stands in for the operations on a device where there is no CUDA to compile them with.

#include "base/error.h"
#include "kernels/cuda_processor.h"

namespace klotski {

std::unique_ptr<const Processor> make_cuda_processor(Device&) {
  fail(ErrorKind::device_unavailable,
       "this klotski was built without CUDA; build it with the preset cuda to use a device");
}

}  // namespace klotski
