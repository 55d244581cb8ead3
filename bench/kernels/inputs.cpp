#include "inputs.h"

#include <algorithm>
#include <random>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "memory/arena.h"
#include "memory/tier.h"
#include "probe/random_weights.h"

namespace klotski::bench {

const CpuProcessor& processor() {
  static const CpuProcessor kMade;
  return kMade;
}

std::span<const std::byte> random_memory() {
  static const std::span<const std::byte> kMemory = [] {
    const uint64_t bytes = std::min(kGiB, memory_left().least() / 4) / kMiB * kMiB;
    // Never destroyed: there is nothing to save at the end of the program.
    auto* tier = new Tier("memory", bytes);
    auto* arena = new Arena(*tier, "weights", bytes);
    fill_random(processor(), arena->bytes(), DType::BF16);
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
