#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <atomic>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "kernels/cpu/multiply.h"
#include "kernels/reference/reference_ops.h"

namespace klotski {

namespace {

constexpr int kInUse = -1;  // the pool exists: too late to choose
std::atomic<int> threads_wanted{0};

}  // namespace

namespace cpu {

Machine& machine() {
  static Machine& the_machine = [&]() -> Machine& {
    const Kernels& chosen = kernels();  // refused before a thread is started
    const int wanted = threads_wanted.exchange(kInUse);
    // Never destroyed: at exit other threads may still compute, and there is nothing to save.
    auto* pool = new ThreadPool(wanted > 0 ? wanted : usable_cpus());
    return *new Machine{chosen, *pool};
  }();
  return the_machine;
}

}  // namespace cpu

bool set_compute_threads(int threads) {
  if (threads < 1) fail(ErrorKind::usage, "threads: expected at least 1, found {}", threads);
  int wanted = threads_wanted.load();
  while (wanted != kInUse && !threads_wanted.compare_exchange_weak(wanted, threads)) {
  }
  return wanted != kInUse;
}

namespace cpu {

uint64_t scratch_bytes(const MostWork& most) {
  const Kernels& chosen = kernels();
  const int64_t widest = std::max(most.in_width, most.expert_width);
  // Of packed rows, in whichever precision takes more.
  const auto block = [&](int64_t width) {
    return std::max(chosen.f32.block_bytes(width),
                    chosen.bf16 ? chosen.bf16->block_bytes(width) : 0);
  };
  const auto floats = [](int64_t count) { return count * static_cast<int64_t>(sizeof(float)); };
  // Of many experts with a row each every one takes a block of its own.
  const int64_t packed =
      kStripRows / kBlockRows * (block(most.in_width) + block(most.expert_width));
  // Of an expert's strip, of attention, of inputs whose second parts are packed, and of bf16
  // weights that are arranged.
  const int64_t group =
      chosen.bf16 && chosen.bf16->arrangement ? chosen.bf16->arrangement->rows : 0;
  const int64_t sums =
      floats(std::max({2 * std::min(most.rows, kStripRows) * kStripOutputs, kBlockQueries * kChunk,
                       kBlockRows * most.in_width, group * widest / 2}));
  // Of compact weights that become plain ones.
  const int64_t weights = most_expanded_bytes(widest);
  const int64_t queries = kBlockQueries / kBlockRows * block(most.head_dim);
  const int wanted = threads_wanted.load();
  const int64_t threads = wanted == kInUse ? machine().pool.threads()
                          : wanted > 0     ? wanted
                                           : usable_cpus();
  return static_cast<uint64_t>(packed + threads * (sums + weights + queries + kStripScratchBytes));
}

}  // namespace cpu

const Ops& cpu_ops() {
  using cpu::machine;
  static const Ops kOps = [] {
    Ops fast = reference_ops();
    fast.scratch_bytes = cpu::scratch_bytes;
    fast.matmul = [](Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
                     Precision precision) {
      cpu::matmul(machine(), out, in, weight, bias, precision);
    };
    fast.experts = [](std::span<const ExpertProduct> products, Precision precision) {
      cpu::experts(machine(), products, precision);
    };
    fast.arrange = [](std::byte* data, DType dtype, const Shape& shape, Precision precision) {
      return cpu::arrange(machine(), data, dtype, shape, precision);
    };
    fast.attention = [](std::span<const AttentionArguments> sequences) {
      cpu::attention(machine(), sequences);
    };
    fast.rms_norm = [](Rows out, ConstRows in, const TensorView& weight, float epsilon) {
      cpu::rms_norm(machine(), out, in, weight, epsilon);
    };
    fast.combine = [](Rows out, ConstRows slots_in, std::span<const float> weights) {
      cpu::combine(machine(), out, slots_in, weights);
    };
    fast.most_likely = [](std::span<TokenId> tokens, ConstRows logits) {
      cpu::most_likely(machine(), tokens, logits);
    };
    return fast;
  }();
  return kOps;
}

}  // namespace klotski
