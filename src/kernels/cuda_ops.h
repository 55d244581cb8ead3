#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "device/device.h"
#include "kernels/ops.h"

namespace klotski {

// Every operation on a device. Inputs of products are rounded to the 16-bit type of the weights
// where the precision asks for no more; sums are float32. The same call on the same numbers gives
// the same bits, but a row's result may depend on how many rows are computed with it.
//
// Operations run one after the other on a stream of their own; they begin before their calls
// return. OpsMemory::finish waits for them. One thread at a time, one of these in a process.
class CudaOps {
 public:
  // Of `arena`, device memory, the products take kProductWorkspace; the rest is OpsMemory's. Throws
  // device_unavailable where the libraries for products are not installed.
  CudaOps(Device& device, std::span<std::byte> arena);
  ~CudaOps();
  CudaOps(const CudaOps&) = delete;
  CudaOps& operator=(const CudaOps&) = delete;

  static constexpr uint64_t kProductWorkspace = uint64_t{32} << 20;

  // To be called while one of these lives; what they take is known before.
  static const Ops& table();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace klotski
