#include "device/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "device/cuda_call_cuda.h"
#include "device/cuda_queue.h"
#include "device/memory_ranges.h"
#include "device/nvml.h"

namespace klotski::cuda {

namespace {

// Free memory before the process made its context, asked once: a context stays until the process
// ends. Where nobody can say, all of it, so that whatever is in use counts as the process's own.
uint64_t free_before_context(const DeviceInfo& info) {
  static std::mutex mutex;
  static std::map<int, uint64_t> known;  // by number of the device
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(info.index, info.total_bytes);
  if (is_new) {
    const std::optional<uint64_t> free = nvml_free_bytes(info.pci_address);
    // A part of a divided device has fewer bytes than the whole reports as free.
    if (free) entry->second = std::min(*free, info.total_bytes);
  }
  return entry->second;
}

uint64_t minus(uint64_t a, uint64_t b) { return a - std::min(a, b); }

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceInfo& info)
      : info_(info), free_before_(free_before_context(info)) {
    // The context is made by choosing a device, or by the first call that asks something of it.
    cudaError_t result = set_current(info.index);
    if (result == cudaSuccess) result = cudaFree(nullptr);
    result = cuda_result(result);
    if (result == cudaErrorDevicesUnavailable) {
      cudaGetLastError();
      fail(ErrorKind::device_unavailable,
           "device {} ({}): another process has it for itself; wait for that one, or allow several "
           "with nvidia-smi -i {} -c DEFAULT",
           info.index, in_quotes(info.name), info.pci_address);
    }
    check_cuda(result, "making a context");
  }

  const DeviceInfo& info() const override { return info_; }

  uint64_t own_bytes() const override {
    return minus(minus(free_before_, free_bytes()), allocated_.total());
  }

  uint64_t free_bytes() const override {
    use();
    size_t free = 0;
    size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

  std::byte* allocate(uint64_t bytes) override {
    if (bytes == 0) return nullptr;
    use();
    void* made = nullptr;
    // A size beyond any memory may overflow in the driver, which then finds it invalid.
    const cudaError_t result = cuda_result(bytes > info_.total_bytes ? cudaErrorMemoryAllocation
                                                                     : cudaMalloc(&made, bytes));
    if (result != cudaSuccess) {
      cudaFree(made);  // not null where a test calls a success a failure
      check_cuda(result, fmt::format("cudaMalloc of {}", format_bytes(bytes)).c_str());
    }
    auto* memory = static_cast<std::byte*>(made);
    allocated_.add(memory, bytes);
    return memory;
  }

  void release(std::byte* memory) noexcept override {
    if (memory == nullptr) return;
    // Removed first: as soon as the memory is free, another thread may be given its address.
    allocated_.remove(memory);
    if (set_current(info_.index) == cudaSuccess) cudaFree(memory);
    cudaGetLastError();
  }

  bool pin(std::span<std::byte> memory) override {
    if (memory.empty() || pinned_.hold(memory.data(), memory.size())) return true;
    use();
    const cudaError_t result =
        cuda_result(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault));
    if (result == cudaSuccess) {
      pinned_.add(memory.data(), memory.size());
      return true;
    }
    cudaGetLastError();
    // The pages of memory that somebody else registered stay where they are, but copies treat it as
    // not pinned.
    if (result == cudaErrorHostMemoryAlreadyRegistered) return true;
    if (is_lost(result)) check_cuda(result, "cudaHostRegister");
    return false;
  }

  void unpin(std::span<std::byte> memory) noexcept override {
    if (memory.empty() || pinned_.remove(memory.data()) == 0) return;
    if (set_current(info_.index) == cudaSuccess) cudaHostUnregister(memory.data());
    cudaGetLastError();
  }

  std::unique_ptr<CopyQueue> new_queue(CopySize size) override {
    return cuda::new_queue(info_.index, pinned_, size);
  }

 private:
  // Each thread has a current device of its own, at first number 0.
  void use() const { check_cuda(set_current(info_.index), "cudaSetDevice"); }

  DeviceInfo info_;
  uint64_t free_before_;
  MemoryRanges allocated_;
  MemoryRanges pinned_;
};

}  // namespace

std::unique_ptr<Device> open(const DeviceInfo& info) { return std::make_unique<CudaDevice>(info); }

}  // namespace klotski::cuda
