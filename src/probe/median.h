#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace klotski {

template <size_t kCount>
double median(std::array<double, kCount> values) {
  std::sort(values.begin(), values.end());
  return values[kCount / 2];
}

}  // namespace klotski
