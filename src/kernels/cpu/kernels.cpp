#include "kernels/cpu/kernels.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernels/ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(KLOTSKI_X86_BF16)
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Declares the functions of one instruction set, and their table.
#define KLOTSKI_DECLARE_KERNELS(isa)                                                            \
  namespace klotski::cpu::isa {                                                                 \
  int64_t block_bytes(int64_t width);                                                           \
  void pack(const BlockColumns& columns);                                                       \
  void multiply(const Strip& strip);                                                            \
  void expand(const CompactRows& rows);                                                         \
  void expand_blocks(const BlockRows& rows);                                                    \
  float softmax(const ScoreRow& row, SoftmaxState& state);                                      \
  void scale(float* values, int64_t count, float factor);                                       \
  void mix(const Mix& mix);                                                                     \
  void gate(float* values, const float* up, int64_t count, GateFunction function);              \
  void clamped_swiglu(float* values, const float* up, int64_t count, float slope, float limit); \
  float sum_of_squares(const float* values, int64_t count);                                     \
  void delta_rule(const DeltaColumns& columns);                                                 \
  constexpr Kernels kKernels = {#isa,           {block_bytes, pack, multiply, nullptr, false},  \
                                nullptr,        expand,                                         \
                                expand_blocks,  softmax,                                        \
                                scale,          mix,                                            \
                                gate,           clamped_swiglu,                                 \
                                sum_of_squares, delta_rule};                                    \
  }

// Declares products of bf16 inputs, and a table that joins them with the operations of another set.
#define KLOTSKI_DECLARE_BF16(isa, others, arrangement_or_null, reads_compact)       \
  namespace klotski::cpu::isa {                                                     \
  int64_t block_bytes(int64_t width);                                               \
  void pack(const BlockColumns& columns);                                           \
  void multiply(const Strip& strip);                                                \
  void expand(const CompactRows& rows);                                             \
  void expand_blocks(const BlockRows& rows);                                        \
  extern const Arrangement kArrangement;                                            \
  constexpr Products kProducts = {block_bytes, pack, multiply, arrangement_or_null, \
                                  reads_compact};                                   \
  constexpr Kernels kKernels = {#isa,                                               \
                                others::kKernels.f32,                               \
                                &kProducts,                                         \
                                expand,                                             \
                                expand_blocks,                                      \
                                others::kKernels.softmax,                           \
                                others::kKernels.scale,                             \
                                others::kKernels.mix,                               \
                                others::kKernels.gate,                              \
                                others::kKernels.clamped_swiglu,                    \
                                others::kKernels.sum_of_squares,                    \
                                others::kKernels.delta_rule};                       \
  }

KLOTSKI_DECLARE_KERNELS(portable)
#if defined(__x86_64__)
KLOTSKI_DECLARE_KERNELS(avx2)
KLOTSKI_DECLARE_KERNELS(avx512)
#if defined(KLOTSKI_X86_BF16)
KLOTSKI_DECLARE_BF16(avx512_bf16, avx512, nullptr, false)
KLOTSKI_DECLARE_BF16(amx_bf16, avx512, &kArrangement, true)
#endif
#elif defined(__aarch64__)
KLOTSKI_DECLARE_KERNELS(neon)
KLOTSKI_DECLARE_BF16(neon_bf16, neon, &kArrangement, false)
#endif

namespace klotski::cpu {

namespace {

// The flags here are those of CMakeLists.txt, which the files are compiled with.
#if defined(__x86_64__)
#if defined(KLOTSKI_X86_BF16)
constexpr const Kernels* kAll[] = {&portable::kKernels, &avx2::kKernels, &avx512::kKernels,
                                   &avx512_bf16::kKernels, &amx_bf16::kKernels};

// Whether the processor has tile registers for bf16, and the kernel saves them and lets this
// process use them: Linux wants to be asked first.
bool has_tiles() {
  constexpr unsigned kTile = 1u << 24;  // leaf 7, edx
  constexpr unsigned kTileBf16 = 1u << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTile) || !(d & kTileBf16)) return false;
  constexpr unsigned kTileState = 3u << 17;  // layout and data
  unsigned saved = 0, upper = 0;
  asm volatile("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return (saved & kTileState) == kTileState &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

int count_bf16_supported() {
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bf16")) {
    return 0;
  }
  return has_tiles() ? 2 : 1;
}
#else
constexpr const Kernels* kAll[] = {&portable::kKernels, &avx2::kKernels, &avx512::kKernels};

int count_bf16_supported() { return 0; }
#endif

// Asked of the processor itself: not every compiler knows its name.
bool has_f16c() {
  constexpr unsigned kF16c = 1u << 29;  // leaf 1, ecx
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & kF16c);
}

int count_supported() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return 1;
  return __builtin_cpu_supports("avx512f") ? 3 + count_bf16_supported() : 2;
}
#elif defined(__aarch64__)
constexpr const Kernels* kAll[] = {&portable::kKernels, &neon::kKernels, &neon_bf16::kKernels};

int count_supported() { return (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0 ? 3 : 2; }
#else
constexpr const Kernels* kAll[] = {&portable::kKernels};

int count_supported() { return 1; }
#endif

// Empty where the choice is left to the program.
std::string_view forced_name() {
  const char* wanted = std::getenv("KLOTSKI_CPU");
  return wanted ? wanted : "";
}

const Kernels& choose() {
  const KernelList all = all_kernels();
  const std::string_view wanted = forced_name();
  if (wanted.empty()) return *all.begin[all.count - 1];
  std::string names;
  for (int i = 0; i < all.count; ++i) {
    if (wanted == all.begin[i]->name) return *all.begin[i];
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

namespace klotski {

CpuKernels cpu_kernels() {
  const cpu::Kernels& chosen = cpu::kernels();
  CpuKernels found{.chosen = chosen.name,
                   .available = {},
                   .forced = !cpu::forced_name().empty(),
                   .bf16 = chosen.bf16 != nullptr};
  const cpu::KernelList all = cpu::all_kernels();
  for (int i = 0; i < all.count; ++i) found.available.push_back(all.begin[i]->name);
  return found;
}

}  // namespace klotski
