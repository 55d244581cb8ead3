#include "inputs.h"

#include <algorithm>
#include <random>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "kernels/cpu/cpu_ops.h"
#include "memory/arena.h"
#include "memory/tier.h"

namespace klotski::bench {

namespace {

constexpr size_t kPiece = kMiB;  // filled at once

// One step of splitmix64: good enough for weights, and any piece can begin anywhere.
uint64_t random_bits(uint64_t index) {
  uint64_t bits = index * 0x9E3779B97F4A7C15u;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

// Sign, lowest two bits of the exponent and mantissa are random: as bf16 the numbers are between
// 2^-7 and 2^-3, as f16 between 1 and 1.5.
void fill(std::span<std::byte> bytes) {
  auto* words = reinterpret_cast<uint64_t*>(bytes.data());
  cpu::machine().pool.parallel_for(
      static_cast<int64_t>(bytes.size() / kPiece), [&](int64_t begin, int64_t end) {
        constexpr size_t kWords = kPiece / sizeof(uint64_t);
        for (size_t i = static_cast<size_t>(begin) * kWords; i < static_cast<size_t>(end) * kWords;
             ++i) {
          words[i] = (random_bits(i + 1) & 0x81FF81FF81FF81FFu) | 0x3C003C003C003C00u;
        }
      });
}

}  // namespace

std::span<const std::byte> random_memory() {
  static const std::span<const std::byte> kMemory = [] {
    const uint64_t bytes = std::min(kGiB, memory_left().least() / 4) / kPiece * kPiece;
    // Never destroyed, as the compute threads are not.
    auto* tier = new Tier("memory", bytes);
    auto* arena = new Arena(*tier, "weights", bytes);
    fill(arena->bytes());
    return std::span<const std::byte>(arena->bytes());
  }();
  return kMemory;
}

TensorView next_weights(DType type, int64_t rows, int64_t columns) {
  constexpr size_t kAlignment = 4096;
  static size_t next = 0;
  const std::span<const std::byte> memory = random_memory();
  const auto bytes = static_cast<size_t>(rows * columns * bytes_per_element(type));
  if (bytes > memory.size()) {
    fail(ErrorKind::does_not_fit, "weights of {} do not fit in the {} that are there",
         format_bytes(bytes), format_bytes(memory.size()));
  }
  if (next + bytes > memory.size()) next = 0;
  const TensorView view{memory.data() + next, type, {rows, columns}};
  next += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return view;
}

Activations::Activations(int64_t count, int64_t width)
    : count_(count), width_(width), values_(static_cast<size_t>(count * width)) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& value : values_) value = normal(random);
}

}  // namespace klotski::bench
