#include "kernels/cuda_processor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cuda_memory_cuda.h"
#include "kernels/cuda/products_cuda.h"

namespace klotski {

namespace cuda {

CudaProcessor::CudaProcessor(const Device& device)
    : CudaProcessor(std::make_unique<CudaMemory>(device.info()), device.info()) {}

CudaProcessor::CudaProcessor(std::unique_ptr<CudaMemory> own, const DeviceInfo& info)
    : Processor(std::move(own)),
      device_memory_(static_cast<CudaMemory&>(memory)),
      name_(info.name) {}

CudaProcessor::~CudaProcessor() = default;

const Context& CudaProcessor::context() const { return device_memory_.context(); }

ElementOrder CudaProcessor::arrange(std::byte*, DType, const Shape&, Precision) const {
  return ElementOrder::rows;
}

uint64_t CudaProcessor::scratch_bytes(const MostWork& most) const {
  constexpr uint64_t kAttention = uint64_t{64} << 20;
  constexpr uint64_t kLists = uint64_t{8} << 20;  // descriptors, counts of sorting
  constexpr uint64_t kListBytesPerRow = 256;
  const uint64_t products =
      std::max(matmul_scratch_bytes(most.rows, most.in_width), experts_scratch_bytes(most));
  return std::max(products, kAttention) + kLists +
         static_cast<uint64_t>(most.rows) * kListBytesPerRow;
}

}  // namespace cuda

std::unique_ptr<const Processor> make_cuda_processor(Device& device) {
  return std::make_unique<cuda::CudaProcessor>(device);
}

}  // namespace klotski
