#include "peak.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "inputs.h"
#include "isa/loops.h"

KLOTSKI_DECLARE_MULTIPLY(portable, f32)
KLOTSKI_DECLARE_READ(portable)
#if defined(__x86_64__)
KLOTSKI_DECLARE_MULTIPLY(avx2, f32)
KLOTSKI_DECLARE_READ(avx2)
KLOTSKI_DECLARE_MULTIPLY(avx512, f32)
KLOTSKI_DECLARE_READ(avx512)
#if defined(KLOTSKI_X86_BF16)
KLOTSKI_DECLARE_MULTIPLY(avx512_bf16, bf16)
KLOTSKI_DECLARE_MULTIPLY(amx_bf16, bf16)
#endif
#elif defined(__aarch64__)
KLOTSKI_DECLARE_MULTIPLY(neon, f32)
KLOTSKI_DECLARE_READ(neon)
KLOTSKI_DECLARE_MULTIPLY(neon_bf16, bf16)
#endif

namespace klotski::bench {

namespace {

struct Loops {
  std::string_view kernels;  // name of the kernels
  MultiplyLoop f32;
  MultiplyLoop bf16;  // null where they multiply bf16 as float32
  ReadLoop read;
};

constexpr Loops kLoops[] = {
    {"portable", portable::f32, nullptr, portable::read},
#if defined(__x86_64__)
    {"avx2", avx2::f32, nullptr, avx2::read},
    {"avx512", avx512::f32, nullptr, avx512::read},
#if defined(KLOTSKI_X86_BF16)
    {"avx512_bf16", avx512::f32, avx512_bf16::bf16, avx512::read},
    {"amx_bf16", avx512::f32, amx_bf16::bf16, avx512::read},
#endif
#elif defined(__aarch64__)
    {"neon", neon::f32, nullptr, neon::read},
    {"neon_bf16", neon::f32, neon_bf16::bf16, neon::read},
#endif
};

const Loops& loops_of(std::string_view kernels) {
  for (const Loops& loops : kLoops) {
    if (loops.kernels == kernels) return loops;
  }
  fail(ErrorKind::internal, "no loops that measure the instruction set {}", kernels);
}

constexpr int kPasses = 5;

// Seconds of some passes, the shortest first.
template <typename Pass>
std::vector<double> seconds_of(const Pass& pass) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = 0; i < kPasses; ++i) {
    const auto start = Clock::now();
    pass();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

// The fastest pass counts: only other work of the machine disturbs arithmetic in registers.
double operations_per_second(MultiplyLoop loop, int threads) {
  constexpr int64_t kRounds = 2000;  // tens of microseconds: no thread waits long for another
  const int64_t pieces = 250 * threads;
  std::atomic<int64_t> operations{0};
  const auto run = [&](int64_t begin, int64_t end) {
    float sink = 0.0f;
    int64_t done = 0;
    for (int64_t i = begin; i < end; ++i) done += loop(kRounds, &sink);
    benchmark::DoNotOptimize(sink);
    operations += done;
  };
  const double seconds = seconds_of([&] {
                           operations = 0;
                           if (threads == 1) {
                             run(0, pieces);
                           } else {
                             processor().parallel_for(pieces, run);
                           }
                         }).front();
  return static_cast<double>(operations) / seconds;
}

// The median: memory has no fixed speed that a pass could only fall short of.
double bytes_per_second(ReadLoop loop, int threads) {
  const std::span<const std::byte> memory = random_memory();
  constexpr int64_t kPiece = 1 << 18;  // floats: 1 MiB
  static_assert(kPiece % kReadStep == 0);
  const int64_t all = static_cast<int64_t>(memory.size()) / (kPiece * 4);
  const int64_t pieces = threads == 1 ? all / 2 : all;
  const auto* data = reinterpret_cast<const float*>(memory.data());
  const auto run = [&](int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t i = begin; i < end; ++i) sum += loop(data + i * kPiece, kPiece);
    benchmark::DoNotOptimize(sum);
  };
  const double seconds = seconds_of([&] {
    if (threads == 1) {
      run(0, pieces);
    } else {
      processor().parallel_for(pieces, run);
    }
  })[kPasses / 2];
  return static_cast<double>(pieces * kPiece * 4) / seconds;
}

Peak measure() {
  const cpu::Machine machine = processor().machine();
  const Loops& loops = loops_of(machine.kernels.name);
  const int threads = machine.pool.threads();
  const auto multiply = [&](MultiplyLoop loop) {
    return Rate{operations_per_second(loop, 1), operations_per_second(loop, threads)};
  };
  Peak found;
  found.read = {bytes_per_second(loops.read, 1), bytes_per_second(loops.read, threads)};
  found.f32 = multiply(loops.f32);
  found.bf16 = loops.bf16 ? multiply(loops.bf16) : found.f32;
  return found;
}

}  // namespace

const Peak& peak() {
  static const Peak kPeak = measure();
  return kPeak;
}

void add_peak_to_context() {
  const cpu::Machine machine = processor().machine();
  const auto add = [](const std::string& name, const Rate& rate, const char* unit) {
    benchmark::AddCustomContext(name + " " + unit, fmt::format("{:.1f}", rate.all_threads * 1e-9));
    benchmark::AddCustomContext(name + " " + unit + ", one thread",
                                fmt::format("{:.1f}", rate.one_thread * 1e-9));
  };
  benchmark::AddCustomContext("kernels", machine.kernels.name);
  benchmark::AddCustomContext("compute threads", std::to_string(machine.pool.threads()));
  add("peak f32", peak().f32, "GFLOP/s");
  if (machine.kernels.bf16) add("peak bf16", peak().bf16, "GFLOP/s");
  add("memory read", peak().read, "GB/s");
}

}  // namespace klotski::bench
