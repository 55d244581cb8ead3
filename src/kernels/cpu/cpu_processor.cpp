#include "kernels/cpu/cpu_processor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/cpu/multiply.h"

namespace klotski::cpu {

namespace {

constexpr int64_t kExpandedBytes = 2;  // bytes of an expanded number that scratch_bytes() counts

}  // namespace

CpuProcessor::CpuProcessor(int threads, const Kernels& kernels,
                           std::unique_ptr<ProcessorMemory> own_memory)
    : ReferenceProcessor(std::move(own_memory)), kernels_(kernels), threads_(threads) {
  if (threads < 1) fail(ErrorKind::usage, "threads: expected at least 1, found {}", threads);
}

Machine CpuProcessor::machine() const {
  std::call_once(started_, [this] { pool_ = std::make_unique<ThreadPool>(threads_); });
  return {kernels_, *pool_};
}

void CpuProcessor::parallel_for(int64_t count,
                                const std::function<void(int64_t, int64_t)>& body) const {
  machine().pool.parallel_for(count, body);
}

uint64_t CpuProcessor::scratch_bytes(const MostWork& most) const {
  const int64_t widest = std::max(most.in_width, most.expert_width);
  // Bytes of a block of packed rows, in whichever precision takes more.
  const auto block = [&](int64_t width) {
    return std::max(kernels_.f32.block_bytes(width),
                    kernels_.bf16 ? kernels_.bf16->block_bytes(width) : 0);
  };
  const auto floats = [](int64_t count) { return count * static_cast<int64_t>(sizeof(float)); };
  // Packed rows. The most are taken by many experts with a row each: every expert has a block of
  // its own.
  const int64_t packed =
      kStripRows / kBlockRows * (block(most.in_width) + block(most.expert_width));
  // Sums of an expert's strip, of attention, of inputs whose second parts are packed, and of bf16
  // weights that are arranged.
  const int64_t group =
      kernels_.bf16 && kernels_.bf16->arrangement ? kernels_.bf16->arrangement->rows : 0;
  const int64_t sums =
      floats(std::max({2 * std::min(most.rows, kStripRows) * kStripOutputs, kBlockQueries * kChunk,
                       kBlockRows * most.in_width, group * widest / 2}));
  const int64_t weights = most_expanded_bytes(widest, kExpandedBytes);
  const int64_t queries = kBlockQueries / kBlockRows * block(most.head_dim);
  return static_cast<uint64_t>(packed + threads_ * (sums + weights + queries + kStripScratchBytes));
}

// Bytes by which expanded numbers of 32 bits exceed those that scratch_bytes() counts, and rows on
// their way to be rounded. Routers are multiplied in float32 whatever the precision is.
uint64_t CpuProcessor::expansion_bytes(const MostWork& most, Precision,
                                       std::span<const DType> formats) const {
  const int64_t widest = std::max(most.in_width, most.expert_width);
  int64_t more = 0;
  for (const DType format : formats) {
    if (!is_packed(format)) continue;
    const int64_t bytes = element_bytes(format_kernel(format, false).type);
    const int64_t wider =
        most_expanded_bytes(widest, bytes) - most_expanded_bytes(widest, kExpandedBytes);
    more = std::max(more, wider + rounding_bytes(format, widest));
  }
  return static_cast<uint64_t>(threads_ * more);
}

}  // namespace klotski::cpu
