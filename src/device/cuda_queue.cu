#include "device/cuda_queue.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "device/copy_kernel_cuda.h"
#include "device/cuda_call_cuda.h"
#include "device/cuda_owned_cuda.h"

namespace klotski::cuda {

namespace {

// Threads that wait for long sleep: processors have experts to compute meanwhile.
Waiting waiting_for(CopySize size) {
  return size == CopySize::small ? Waiting::spins : Waiting::sleeps;
}

using WaitValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

// The driver's call that lets a stream wait for a count; null where the driver, which is there
// since a device is, has no such call.
WaitValue wait_value() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? reinterpret_cast<WaitValue>(dlsym(driver, "cuStreamWaitValue32_v2")) : nullptr;
}

// Lets a stream wait for a count; false where the device cannot wait for the program's memory.
bool wait_on_stream(cudaStream_t stream, const std::atomic<uint32_t>& count, uint32_t least) {
  static const WaitValue kWait = wait_value();
  void* seen = nullptr;
  auto* address = const_cast<std::atomic<uint32_t>*>(&count);
  if (!kWait || cudaHostGetDevicePointer(&seen, address, 0) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return kWait(stream, reinterpret_cast<CUdeviceptr>(seen), least, CU_STREAM_WAIT_VALUE_GEQ) ==
         CUDA_SUCCESS;
}

class CudaQueue final : public CopyQueue {
 public:
  CudaQueue(int device, const MemoryRanges& pinned, CopySize size)
      : device_(device), pinned_(pinned), size_(size) {
    use_device();
    stream_ = new_stream();
    done_ = new_event(waiting_for(size));
  }
  ~CudaQueue() override {
    // Copies under way use the staging buffers, so these must outlive them. Errors are reported
    // elsewhere.
    if (set_current(device_) == cudaSuccess) cudaStreamSynchronize(stream_.get());
    cudaGetLastError();
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void to_device(std::byte* to, const std::byte* from, uint64_t bytes) override {
    if (bytes == 0) return;
    use_device();
    if (pinned_.hold(from, bytes)) return enqueue(to, from, bytes, cudaMemcpyHostToDevice);
    send_staged(to, bytes, kStagingBytes, [&](std::byte* staged, uint64_t begin, uint64_t piece) {
      std::memcpy(staged, from + begin, piece);
    });
  }

  void rows_to_device(std::byte* to, const std::byte* from, uint64_t row_bytes, uint64_t rows,
                      uint64_t from_stride) override {
    if (row_bytes == 0 || rows == 0) return;
    use_device();
    if (pinned_.hold(from, (rows - 1) * from_stride + row_bytes)) {
      check_cuda(cudaMemcpy2DAsync(to, row_bytes, from, from_stride, row_bytes, rows,
                                   cudaMemcpyHostToDevice, stream_.get()),
                 "cudaMemcpy2DAsync");
      return;
    }
    if (row_bytes > kStagingBytes) {
      for (uint64_t row = 0; row < rows; ++row) {
        to_device(to + row * row_bytes, from + row * from_stride, row_bytes);
      }
      return;
    }
    const uint64_t whole_rows = kStagingBytes / row_bytes * row_bytes;
    send_staged(to, rows * row_bytes, whole_rows,
                [&](std::byte* staged, uint64_t begin, uint64_t piece) {
                  const std::byte* row = from + begin / row_bytes * from_stride;
                  for (uint64_t at = 0; at < piece; at += row_bytes, row += from_stride) {
                    std::memcpy(staged + at, row, row_bytes);
                  }
                });
  }

  void to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    if (bytes == 0) return;
    use_device();
    if (pinned_.hold(to, bytes)) return enqueue(to, from, bytes, cudaMemcpyDeviceToHost);
    // A piece's transfer goes on while the piece before it is copied out of its buffer.
    Piece before;
    for (uint64_t begin = 0; begin < bytes; begin += kStagingBytes) {
      const Piece piece{to + begin, &next_staging(), std::min(kStagingBytes, bytes - begin)};
      enqueue(piece.staging->memory.get(), from + begin, piece.bytes, cudaMemcpyDeviceToHost);
      record(piece.staging->free);
      copy_out(before);
      before = piece;
    }
    copy_out(before);
  }

  void pieces_to_device(std::span<const CopyPiece> pieces) override {
    at_once(pieces, cudaMemcpyHostToDevice);
  }
  void pieces_to_host(std::span<const CopyPiece> pieces) override {
    at_once(pieces, cudaMemcpyDeviceToHost);
  }

  void finish() override {
    use_device();
    record(done_);
    wait_for(done_);
  }

  // The device itself waits where it can: the thread has other copies to ask for.
  void wait_for_count(const std::atomic<uint32_t>& count, uint32_t least) override {
    use_device();
    awaited_ = {&count, least};
    if (!wait_on_stream(stream_.get(), count, least)) awaited_.let_come();
  }
  void publish() override {
    use_device();
    if (!published_) published_ = new_event(Waiting::spins);
    record(published_);
  }
  void* published() const override { return published_.get(); }
  void wait_for_mark(void* mark) override {
    use_device();
    check_cuda(cudaStreamWaitEvent(stream_.get(), static_cast<cudaEvent_t>(mark), 0),
               "cudaStreamWaitEvent");
  }

 private:
  struct Staging {
    Pinned memory;
    Event free;  // happens when the transfer that used it last is over
  };
  struct Awaited {
    const std::atomic<uint32_t>* count = nullptr;
    uint32_t least = 0;

    void let_come() {
      while (count && !has_come_to(*count, least)) std::this_thread::yield();
      count = nullptr;
    }
  };
  struct Piece {  // a piece on its way to the program's memory
    std::byte* to = nullptr;
    const Staging* staging = nullptr;
    uint64_t bytes = 0;
  };

  void use_device() const { check_cuda(set_current(device_), "cudaSetDevice"); }

  // Copies by one kernel all pieces that a kernel can copy, the remaining pieces one by one.
  void at_once(std::span<const CopyPiece> pieces, cudaMemcpyKind kind) {
    const bool up = kind == cudaMemcpyHostToDevice;
    use_device();
    std::vector<CopyPiece> by_kernel;
    for (const CopyPiece& one : pieces) {
      if (one.bytes == 0) continue;
      const bool pinned = pinned_.hold(up ? one.from : one.to, one.bytes);
      const std::optional<CopyPiece> seen = pinned ? for_kernel(one, kind) : std::nullopt;
      if (seen) {
        by_kernel.push_back(*seen);
      } else if (up) {
        to_device(one.to, one.from, one.bytes);
      } else {
        to_host(one.to, one.from, one.bytes);
      }
    }
    copy_by_kernel(by_kernel, stream_.get());
  }

  // Enqueues a copy whose host side is pinned memory.
  void enqueue(std::byte* to, const std::byte* from, uint64_t bytes, cudaMemcpyKind kind) {
    if (const auto seen = for_kernel({to, from, bytes}, kind)) {
      return copy_by_kernel(*seen, stream_.get());
    }
    check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "cudaMemcpyAsync");
  }
  // A copy of pinned memory as a kernel makes it; nothing where the device's copy engines are to.
  std::optional<CopyPiece> for_kernel(const CopyPiece& copy, cudaMemcpyKind kind) const {
    if (size_ == CopySize::large || misalignment(copy.to) != misalignment(copy.from)) return {};
    const bool up = kind == cudaMemcpyHostToDevice;
    std::byte* seen = as_device_sees(up ? copy.from : copy.to);
    if (!seen) return {};
    return CopyPiece{up ? copy.to : seen, up ? seen : copy.from, copy.bytes};
  }
  // Pinned memory of the program as the device addresses it; null where it does not.
  static std::byte* as_device_sees(const std::byte* pinned) {
    void* seen = nullptr;
    if (cudaHostGetDevicePointer(&seen, const_cast<std::byte*>(pinned), 0) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    return static_cast<std::byte*>(seen);
  }
  // Sends memory that is not pinned through the staging buffers, at most `most` bytes at a time:
  // `fill` puts the piece at byte `begin` of the copy into a buffer.
  template <typename Fill>
  void send_staged(std::byte* to, uint64_t bytes, uint64_t most, const Fill& fill) {
    awaited_.let_come();  // the thread may copy only bytes that the count says are there
    for (uint64_t begin = 0; begin < bytes; begin += most) {
      const uint64_t piece = std::min(most, bytes - begin);
      Staging& staging = next_staging();
      fill(staging.memory.get(), begin, piece);
      enqueue(to + begin, staging.memory.get(), piece, cudaMemcpyHostToDevice);
      record(staging.free);
    }
  }
  void record(const Event& event) {
    check_cuda(cudaEventRecord(event.get(), stream_.get()), "cudaEventRecord");
  }
  static void wait_for(const Event& event) {
    check_cuda(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
  }
  static void copy_out(const Piece& piece) {
    if (piece.bytes == 0) return;
    wait_for(piece.staging->free);
    std::memcpy(piece.to, piece.staging->memory.get(), piece.bytes);
  }

  // The buffer used less recently, when no transfer uses it any more.
  Staging& next_staging() {
    Staging& staging = staging_[next_];
    next_ = 1 - next_;
    if (!staging.free) staging.free = new_event(waiting_for(size_));
    if (!staging.memory) staging.memory = new_pinned(kStagingBytes);
    wait_for(staging.free);  // returns at once where it was never recorded
    return staging;
  }

  int device_;
  const MemoryRanges& pinned_;
  CopySize size_;
  Stream stream_;
  Event done_;
  Event published_;
  Awaited awaited_;  // the count that the stream waits for, until it is known to have come
  std::array<Staging, 2> staging_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<CopyQueue> new_queue(int device, const MemoryRanges& pinned, CopySize size) {
  return std::make_unique<CudaQueue>(device, pinned, size);
}

}  // namespace klotski::cuda
