#pragma once

// What the parts of a layer are measured on.

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "forward/batch.h"

namespace klotski {

inline constexpr LayerId kOnly{0};  // a sample's layer

inline uint64_t float_bytes(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

inline std::shared_ptr<Buffer> random_rows(int64_t count, int64_t width) {
  auto rows = std::make_shared<Buffer>(count, width);
  uint32_t state = 1;
  for (float& value : rows->floats()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;  // from -1 to 1
  }
  return rows;
}

}  // namespace klotski
