#include "kernels/cpu/kernels.h"

// Declares the functions of one instruction set, and their table.
#define KLOTSKI_DECLARE_KERNELS(isa)                         \
  namespace klotski::cpu::isa {                              \
  void matmul_panel(const MatmulPanel& panel);               \
  void attend(const HeadGroup& group);                       \
  constexpr Kernels kKernels = {#isa, matmul_panel, attend}; \
  }

KLOTSKI_DECLARE_KERNELS(baseline)
#if defined(__x86_64__)
KLOTSKI_DECLARE_KERNELS(avx2)
KLOTSKI_DECLARE_KERNELS(avx512)
#endif

namespace klotski::cpu {

namespace {

#if defined(__x86_64__)
constexpr const Kernels* kAll[] = {&baseline::kKernels, &avx2::kKernels, &avx512::kKernels};

// The flags here are those the files are compiled with, in CMakeLists.txt.
int count_supported() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  return __builtin_cpu_supports("avx512f") ? 3 : 2;
}
#else
constexpr const Kernels* kAll[] = {&baseline::kKernels};
int count_supported() { return 1; }
#endif

}  // namespace

KernelList all_kernels() {
  static const int kCount = count_supported();
  return {kAll, kCount};
}

const Kernels& kernels() {
  const KernelList all = all_kernels();
  return *all.begin[all.count - 1];
}

}  // namespace klotski::cpu
