#include "kernels/cpu/kernels.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

// Declares the functions of one instruction set, and their table.
#define KLOTSKI_DECLARE_KERNELS(isa)                                                            \
  namespace klotski::cpu::isa {                                                                 \
  int64_t block_bytes(int64_t width);                                                           \
  void pack(const BlockColumns& columns);                                                       \
  void multiply(const Strip& strip);                                                            \
  float softmax(const ScoreRow& row, SoftmaxState& state);                                      \
  void scale(float* values, int64_t count, float factor);                                       \
  void mix(const Mix& mix);                                                                     \
  void gate(float* values, const float* up, int64_t count, GateFunction function);              \
  float sum_of_squares(const float* values, int64_t count);                                     \
  constexpr Kernels kKernels = {                                                                \
      #isa, {block_bytes, pack, multiply}, nullptr, softmax, scale, mix, gate, sum_of_squares}; \
  }

// Declares products of bf16 inputs, and a table in which they join those of another set.
#define KLOTSKI_DECLARE_BF16(isa, others)                         \
  namespace klotski::cpu::isa {                                   \
  int64_t block_bytes(int64_t width);                             \
  void pack(const BlockColumns& columns);                         \
  void multiply(const Strip& strip);                              \
  constexpr Products kProducts = {block_bytes, pack, multiply};   \
  constexpr Kernels kKernels = {#isa,                             \
                                others::kKernels.f32,             \
                                &kProducts,                       \
                                others::kKernels.softmax,         \
                                others::kKernels.scale,           \
                                others::kKernels.mix,             \
                                others::kKernels.gate,            \
                                others::kKernels.sum_of_squares}; \
  }

KLOTSKI_DECLARE_KERNELS(portable)
#if defined(__x86_64__)
KLOTSKI_DECLARE_KERNELS(avx2)
KLOTSKI_DECLARE_KERNELS(avx512)
#elif defined(__aarch64__)
KLOTSKI_DECLARE_KERNELS(neon)
KLOTSKI_DECLARE_BF16(neon_bf16, neon)
#endif

namespace klotski::cpu {

namespace {

// The flags here are those the files are compiled with, in CMakeLists.txt.
#if defined(__x86_64__)
constexpr const Kernels* kAll[] = {&portable::kKernels, &avx2::kKernels, &avx512::kKernels};

int count_supported() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return 1;
  }
  return __builtin_cpu_supports("avx512f") ? 3 : 2;
}
#elif defined(__aarch64__)
constexpr const Kernels* kAll[] = {&portable::kKernels, &neon::kKernels, &neon_bf16::kKernels};

int count_supported() { return (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0 ? 3 : 2; }
#else
constexpr const Kernels* kAll[] = {&portable::kKernels};

int count_supported() { return 1; }
#endif

const Kernels& choose() {
  const KernelList all = all_kernels();
  const char* wanted = std::getenv("KLOTSKI_CPU");
  if (!wanted || !*wanted) return *all.begin[all.count - 1];
  std::string names;
  for (int i = 0; i < all.count; ++i) {
    if (std::string_view(wanted) == all.begin[i]->name) return *all.begin[i];
    names += (i > 0 ? ", " : "") + std::string(all.begin[i]->name);
  }
  fail(ErrorKind::usage,
       "KLOTSKI_CPU: expected an instruction set of this processor ({}), found {}", names,
       in_quotes(wanted));
}

}  // namespace

KernelList all_kernels() {
  static const int kCount = count_supported();
  return {kAll, kCount};
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace klotski::cpu
