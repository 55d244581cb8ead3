#pragma once

#include <cstddef>
#include <span>

#include "model/unit_layout.h"

namespace klotski {

// Where the bytes of units come from: a model's files, or whatever stands for them.
class UnitSource {
 public:
  virtual ~UnitSource() = default;

  // Fills a buffer as the layout's reads would. One thread at a time.
  virtual void read(const WeightUnit& unit, const UnitLayout& layout,
                    std::span<std::byte> buffer) = 0;
};

}  // namespace klotski
