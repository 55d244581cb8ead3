#pragma once

// The fast operations: rows, outputs or heads shared out to the compute threads. An element's value
// never depends on how they are shared out.

#include <memory>
#include <mutex>

#include "base/cpu_limit.h"
#include "base/thread_pool.h"
#include "kernels/cpu/kernels.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_processor.h"

namespace klotski::cpu {

// The instructions and threads that an operation runs with.
struct Machine {
  const Kernels& kernels;
  ThreadPool& pool;
};

inline constexpr int64_t kBlockQueries = 64;  // computed together, at most
inline constexpr int64_t kChunk = 512;        // positions scored before their values are mixed

// The fast implementation: the instructions of one set, several threads. Agrees with the reference
// but for the order of sums, which depends on nothing but the length of a row, and, in bf16, that
// inputs are rounded only where the instruction set has products for it (which may take denormals
// for zero). Operations that gain nothing from threads are those of the reference.
//
// Owns its threads, and with them the scratch that each keeps from call to call; the scratch of a
// calling thread stays with that thread. Operations may be called from several threads at once:
// they take turns with the compute threads.
class CpuProcessor : public ReferenceProcessor {
 public:
  // `threads`, at least 1, count the caller; they start with the first operation.
  explicit CpuProcessor(
      int threads = usable_cpus(), const Kernels& kernels = cpu::kernels(),
      std::unique_ptr<ProcessorMemory> own_memory = std::make_unique<HostMemory>());

  KLOTSKI_OVERRIDE(scratch_bytes)
  KLOTSKI_OVERRIDE(expansion_bytes)
  KLOTSKI_OVERRIDE(rms_norm)
  KLOTSKI_OVERRIDE(layer_norm)
  KLOTSKI_OVERRIDE(matmul)
  KLOTSKI_OVERRIDE(matmul_by_head)
  KLOTSKI_OVERRIDE(experts)
  KLOTSKI_OVERRIDE(arrange)
  KLOTSKI_OVERRIDE(attention)
  KLOTSKI_OVERRIDE(split_heads)
  KLOTSKI_OVERRIDE(apply_gates)
  KLOTSKI_OVERRIDE(causal_convolution)
  KLOTSKI_OVERRIDE(gated_delta_rule)
  KLOTSKI_OVERRIDE(combine)
  KLOTSKI_OVERRIDE(most_likely)
  std::string name() const override { return kernels_.name; }
  int threads() const override { return threads_; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t, int64_t)>& body) const override;

  const Kernels& kernels() const { return kernels_; }
  Machine machine() const;  // starts the threads where they do not run yet

 private:
  const Kernels& kernels_;
  const int threads_;
  mutable std::once_flag started_;
  mutable std::unique_ptr<ThreadPool> pool_;
};

// Shares out `count` pieces of work of `cost` multiplications each, or does it at once where
// waking others would take longer.
template <typename Body>
void share_out(const Machine& with, int64_t count, int64_t cost, const Body& body) {
  constexpr int64_t kWorthSharing = 1 << 17;  // about 5 microseconds
  if (count * cost < kWorthSharing) {
    body(0, count);
  } else {
    with.pool.parallel_for(count, body);
  }
}

}  // namespace klotski::cpu

namespace klotski {

using cpu::CpuProcessor;

}  // namespace klotski
