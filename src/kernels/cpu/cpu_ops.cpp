#include "kernels/cpu/cpu_ops.h"

#include <atomic>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "kernels/reference/reference_ops.h"

namespace klotski {

namespace {

constexpr int kInUse = -1;  // the pool exists: too late to choose
std::atomic<int> threads_wanted{0};

}  // namespace

namespace cpu {

Machine& machine() {
  static Machine& the_machine = [&]() -> Machine& {
    const int wanted = threads_wanted.exchange(kInUse);
    // Never destroyed: at exit other threads may still compute, and there is nothing to save.
    auto* pool = new ThreadPool(wanted > 0 ? wanted : usable_cpus());
    return *new Machine{kernels(), *pool};
  }();
  return the_machine;
}

}  // namespace cpu

void set_compute_threads(int threads) {
  if (threads < 1) fail(ErrorKind::usage, "threads: expected at least 1, found {}", threads);
  int wanted = threads_wanted.load();
  while (wanted != kInUse && !threads_wanted.compare_exchange_weak(wanted, threads)) {
  }
  if (wanted == kInUse) fail(ErrorKind::internal, "the compute threads are running already");
}

const Ops& cpu_ops() {
  using cpu::machine;
  static const Ops kOps = [] {
    Ops fast = reference_ops();
    fast.matmul = [](Rows out, ConstRows in, const TensorView& weight, const TensorView& bias) {
      cpu::matmul(machine(), out, in, weight, bias);
    };
    fast.attention = [](const AttentionArguments& arguments) {
      cpu::attention(machine(), arguments);
    };
    fast.rms_norm = [](Rows out, ConstRows in, const TensorView& weight, float epsilon) {
      cpu::rms_norm(machine(), out, in, weight, epsilon);
    };
    fast.gate = [](Rows gate, ConstRows up, Activation activation) {
      cpu::gate(machine(), gate, up, activation);
    };
    fast.combine = [](Rows out, ConstRows slots_in, std::span<const float> weights) {
      cpu::combine(machine(), out, slots_in, weights);
    };
    return fast;
  }();
  return kOps;
}

}  // namespace klotski
