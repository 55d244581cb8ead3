#include "kernels/cuda_ops.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/free_list.h"
#include "kernels/cuda/products_cuda.h"
#include "kernels/cuda/staging_cuda.h"

namespace klotski {

namespace {

cuda::Stream stream_on(const Device& device) {
  cuda::check_cuda(cudaSetDevice(device.info().index), "cudaSetDevice");
  return cuda::new_stream();
}

std::span<std::byte> workspace_of(std::span<std::byte> arena) {
  if (arena.size() < CudaOps::kProductWorkspace) {
    fail(ErrorKind::does_not_fit,
         "operations on a device need a working memory of {} bytes at least, found {}",
         CudaOps::kProductWorkspace, arena.size());
  }
  return arena.first(CudaOps::kProductWorkspace);
}

// What lives as long as a CudaOps.
struct Resources {
  Resources(const Device& opened, std::span<std::byte> arena)
      : device(opened.info().index),
        stream(stream_on(opened)),
        staging(stream.get()),
        cublas(stream.get(), workspace_of(arena)),
        memory(arena.subspan(CudaOps::kProductWorkspace)),
        context{stream.get(), opened.info().multiprocessors,
                10 * opened.info().major + opened.info().minor} {
    for (cuda::Event& event : events) event = cuda::new_event(cuda::Waiting::spins);
  }

  // Of the latest places.
  const cuda::Event& place(uint64_t number) const { return events[number % events.size()]; }

  int device;
  cuda::Stream stream;
  cuda::Staging staging;
  cuda::Cublas cublas;
  cuda::WorkingMemory memory;
  cuda::Context context;
  std::array<cuda::Event, OpsMemory::kMostPlaces> events;
  uint64_t places = 0;
};

Resources* living = nullptr;

// A thread begins with device 0, whichever this one is.
Resources& resources() {
  thread_local int current = -1;
  if (current != living->device) {
    cuda::check_cuda(cudaSetDevice(living->device), "cudaSetDevice");
    current = living->device;
  }
  return *living;
}

std::byte* take(uint64_t bytes) { return living->memory.take(bytes); }

void lend(std::span<std::byte> memory) { living->memory.lend(memory); }

void give_back(std::byte* memory, uint64_t bytes) { living->memory.give_back(memory, bytes); }

void download(void* to, const std::byte* from, uint64_t bytes) {
  resources().staging.download(static_cast<std::byte*>(to), from, bytes);
}

const std::byte* begin_download(const std::byte* from, uint64_t bytes) {
  return resources().staging.begin_download(from, bytes);
}

void finish() {
  cuda::check_cuda(cudaStreamSynchronize(resources().stream.get()), "cudaStreamSynchronize");
}

uint64_t place() {
  Resources& here = resources();
  cuda::check_cuda(cudaEventRecord(here.place(here.places).get(), here.stream.get()),
                   "cudaEventRecord");
  return here.places++;
}

void finish_to(uint64_t place) {
  cuda::check_cuda(cudaEventSynchronize(resources().place(place).get()), "cudaEventSynchronize");
}

void wait_for_copies(const CopyQueue& copies) {
  cuda::check_cuda(cudaStreamWaitEvent(resources().stream.get(),
                                       static_cast<cudaEvent_t>(copies.published()), 0),
                   "cudaStreamWaitEvent");
}

void let_copies_wait(CopyQueue& copies, uint64_t place) {
  copies.wait_for_place(resources().place(place).get());
}

ElementOrder keep_rows(std::byte*, DType, const Shape&, Precision) { return ElementOrder::rows; }

uint64_t scratch_bytes(const MostWork& most) {
  constexpr uint64_t kAttention = uint64_t{64} << 20;
  constexpr uint64_t kLists = uint64_t{8} << 20;  // descriptors, counts of sorting
  constexpr uint64_t kListBytesPerRow = 256;
  const uint64_t products = std::max(cuda::matmul_scratch_bytes(most.rows, most.in_width),
                                     cuda::experts_scratch_bytes(most));
  return std::max(products, kAttention) + kLists +
         static_cast<uint64_t>(most.rows) * kListBytesPerRow;
}

}  // namespace

struct CudaOps::State {
  State(const Device& device, std::span<std::byte> arena) : resources(device, arena) {
    living = &resources;
  }
  ~State() {
    cudaStreamSynchronize(resources.stream.get());  // what is under way uses all of them
    living = nullptr;
  }

  Resources resources;
};

CudaOps::CudaOps(Device& device, std::span<std::byte> arena) {
  if (living) fail(ErrorKind::internal, "operations on a device were opened twice");
  state_ = std::make_unique<State>(device, arena);
}

CudaOps::~CudaOps() = default;

const Ops& CudaOps::table() {
  static const Ops kOps = {
      .memory = {.readable = false,
                 .take = take,
                 .give_back = give_back,
                 .upload = cuda::upload,
                 .download = download,
                 .begin_download = begin_download,
                 .finish = finish,
                 .place = place,
                 .finish_to = finish_to,
                 .wait_for_copies = wait_for_copies,
                 .let_copies_wait = let_copies_wait,
                 .lend = lend},
      .scratch_bytes = scratch_bytes,
      .expansion_bytes = cuda::experts_expansion_bytes,
      .embed = cuda::embed,
      .rms_norm = cuda::rms_norm,
      .matmul = cuda::matmul,
      .experts = cuda::experts,
      .arrange = keep_rows,
      .rope = cuda::rope,
      .clip = cuda::clip,
      .store_kv = cuda::store_kv,
      .attention = cuda::attention,
      .route = cuda::route,
      .sort_by_expert = cuda::sort_by_expert,
      .add = cuda::add,
      .gather = cuda::gather,
      .scatter = cuda::scatter,
      .scatter_add = cuda::scatter_add,
      .combine = cuda::combine,
      .sigmoid = cuda::sigmoid,
      .most_likely = cuda::most_likely,
  };
  return kOps;
}

namespace cuda {

const Context& context() { return resources().context; }

const Cublas& cublas() { return resources().cublas; }

Scratch::Scratch(uint64_t bytes) : memory_(take(bytes)), bytes_(bytes) {}

Scratch::~Scratch() { give_back(memory_, bytes_); }

void upload(std::byte* to, const void* from, uint64_t bytes) {
  resources().staging.upload(to, static_cast<const std::byte*>(from), bytes);
}

}  // namespace cuda

}  // namespace klotski
