#pragma once

// The context that every operation of this folder runs with.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "device/cuda_call_cuda.h"
#include "device/device.h"
#include "kernels/ops.h"

namespace klotski::cuda {

class Cublas;
class CudaMemory;

// The resources of a processor for the steps of an operation, which work on the device that is
// current.
struct Context {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  int capability = 0;                 // 10 * major + minor
  ProcessorMemory* memory = nullptr;  // scratch and uploads
  const Cublas* cublas = nullptr;     // null while there is no arena
};

// Every operation on a device; one file each. See make_cuda_processor.
class CudaProcessor final : public Processor {
 public:
  explicit CudaProcessor(const Device& device);
  ~CudaProcessor() override;

  KLOTSKI_OPERATIONS(KLOTSKI_OVERRIDE)
  std::string name() const override { return name_; }

  // Makes the device the current one of the calling thread.
  const Context& context() const;

 private:
  CudaProcessor(std::unique_ptr<CudaMemory> own, const DeviceInfo& info);

  CudaMemory& device_memory_;  // the same object as ProcessorMemory `memory`
  std::string name_;
};

// ProcessorMemory's take and give_back, for as long as this lives.
class Scratch {
 public:
  Scratch(const Context& with, uint64_t bytes)
      : owner_(*with.memory), memory_(owner_.take(bytes)), bytes_(bytes) {}
  ~Scratch() { owner_.give_back(memory_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(memory_);
  }

 private:
  ProcessorMemory& owner_;
  std::byte* memory_;
  uint64_t bytes_;
};

// Host values that a kernel reads: copied to scratch in the order of the stream.
template <typename T>
class Uploaded {
 public:
  Uploaded(const Context& with, std::span<const T> values) : scratch_(with, values.size_bytes()) {
    with.memory->upload(scratch_.template as<std::byte>(), values.data(), values.size_bytes());
  }
  const T* data() const { return scratch_.template as<T>(); }

 private:
  Scratch scratch_;
};

// Throws where the launch before this line was refused.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

// Refuses (internal) a matrix whose rows lie apart: products read rows that follow each other. Rows
// of packed formats do so once they are expanded.
inline void check_no_gaps(const TensorView& weight) {
  if (is_packed(weight.dtype)) return;
  if (weight.has_gaps()) fail(ErrorKind::internal, "weights with gaps reached a device's product");
}

}  // namespace klotski::cuda
