#pragma once

// Rows of random numbers on which the parts of a layer are measured.

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "base/ids.h"
#include "forward/buffer.h"

namespace klotski {

inline constexpr LayerId kOnly{0};  // a sample's layer

inline uint64_t float_bytes(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

inline std::vector<int32_t> counted(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

inline std::shared_ptr<Buffer> random_rows(const Processor& ops, int64_t count, int64_t width) {
  auto rows = std::make_shared<Buffer>(ops, count, width);
  std::vector<float> values(static_cast<size_t>(count * width));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;  // in -1 .. 1
  }
  ops.memory.upload(reinterpret_cast<std::byte*>(rows->floats().data()), values.data(),
                    values.size() * sizeof(float));
  return rows;
}

}  // namespace klotski
