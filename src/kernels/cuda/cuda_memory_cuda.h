#pragma once

#include <array>
#include <optional>

#include "device/cuda_owned_cuda.h"
#include "device/device.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/free_list.h"
#include "kernels/cuda/staging_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

// The memory of a device's operations, with the stream that they run on and the staging buffers of
// copies to and from it. Products take their workspace from the arena too.
class CudaMemory final : public ProcessorMemory {
 public:
  explicit CudaMemory(const DeviceInfo& device);
  ~CudaMemory() override;

  std::byte* take(uint64_t bytes) override { return running().memory.take(bytes); }
  void give_back(std::byte* memory, uint64_t bytes) override {
    running().memory.give_back(memory, bytes);
  }
  void upload(std::byte* to, const void* from, uint64_t bytes) override;
  void download(void* to, const std::byte* from, uint64_t bytes) override;
  const std::byte* begin_download(const std::byte* from, uint64_t bytes) override;
  void finish() override;
  StreamMark mark() override;
  void finish_to(StreamMark mark) override;
  void wait_for_copies(const CopyQueue& copies) override;
  void let_copies_wait(CopyQueue& copies, StreamMark mark) override;
  void lend(std::span<std::byte> memory) override { running().memory.lend(memory); }
  void use_arena(std::span<std::byte> arena) override;

  // Makes the device the current one of the calling thread.
  const Context& context() const;

 private:
  // Resources that exist while there is an arena.
  struct Running {
    Running(cudaStream_t stream, std::span<std::byte> arena);

    Staging staging;
    Cublas cublas;
    WorkingMemory memory;
  };

  Running& running();  // throws internal without an arena
  void stop() noexcept;
  const Event& event(StreamMark mark) const { return events_[mark.number % events_.size()]; }

  int device_;
  Stream stream_;
  std::array<Event, kMostMarks> events_;  // the latest marks
  StreamMark next_mark_;
  Context context_;
  std::optional<Running> running_;
};

}  // namespace klotski::cuda
