#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/cuda/cuda_memory_cuda.h"
#include "kernels/cuda_processor.h"

namespace klotski::cuda {

namespace {

Stream stream_on(int device) {
  make_current(device);
  return new_stream();
}

std::span<std::byte> workspace_of(std::span<std::byte> arena) {
  if (arena.size() < kCudaProductWorkspace) {
    fail(ErrorKind::does_not_fit,
         "operations on a device need a working memory of {} bytes at least, found {}",
         kCudaProductWorkspace, arena.size());
  }
  return arena.first(kCudaProductWorkspace);
}

}  // namespace

CudaMemory::Running::Running(cudaStream_t stream, std::span<std::byte> arena)
    : staging(stream),
      cublas(stream, workspace_of(arena)),
      memory(arena.subspan(kCudaProductWorkspace)) {}

CudaMemory::CudaMemory(const DeviceInfo& device)
    : ProcessorMemory(false),
      device_(device.index),
      stream_(stream_on(device.index)),
      context_{.stream = stream_.get(),
               .multiprocessors = device.multiprocessors,
               .capability = 10 * device.major + device.minor,
               .memory = this} {
  for (Event& made : events_) made = new_event(Waiting::spins);
}

CudaMemory::~CudaMemory() { stop(); }

// Operations that are under way use all of it.
void CudaMemory::stop() noexcept {
  if (set_current(device_) == cudaSuccess) cudaStreamSynchronize(stream_.get());
  context_.cublas = nullptr;
  running_.reset();
}

void CudaMemory::use_arena(std::span<std::byte> arena) {
  if (arena.empty()) return stop();
  if (running_) fail(ErrorKind::internal, "operations on a device were given a second arena");
  make_current(device_);
  running_.emplace(stream_.get(), arena);
  context_.cublas = &running_->cublas;
}

CudaMemory::Running& CudaMemory::running() {
  if (!running_) fail(ErrorKind::internal, "operations on a device were called without an arena");
  return *running_;
}

const Context& CudaMemory::context() const {
  make_current(device_);
  return context_;
}

void CudaMemory::upload(std::byte* to, const void* from, uint64_t bytes) {
  make_current(device_);
  running().staging.upload(to, static_cast<const std::byte*>(from), bytes);
}

void CudaMemory::download(void* to, const std::byte* from, uint64_t bytes) {
  make_current(device_);
  running().staging.download(static_cast<std::byte*>(to), from, bytes);
}

const std::byte* CudaMemory::begin_download(const std::byte* from, uint64_t bytes) {
  make_current(device_);
  return running().staging.begin_download(from, bytes);
}

void CudaMemory::finish() {
  make_current(device_);
  check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

StreamMark CudaMemory::mark() {
  make_current(device_);
  check_cuda(cudaEventRecord(event(next_mark_).get(), stream_.get()), "cudaEventRecord");
  return {next_mark_.number++};
}

void CudaMemory::finish_to(StreamMark mark) {
  make_current(device_);
  check_cuda(cudaEventSynchronize(event(mark).get()), "cudaEventSynchronize");
}

void CudaMemory::wait_for_copies(const CopyQueue& copies) {
  make_current(device_);
  check_cuda(cudaStreamWaitEvent(stream_.get(), static_cast<cudaEvent_t>(copies.published()), 0),
             "cudaStreamWaitEvent");
}

void CudaMemory::let_copies_wait(CopyQueue& copies, StreamMark mark) {
  make_current(device_);
  copies.wait_for_mark(event(mark).get());
}

}  // namespace klotski::cuda
