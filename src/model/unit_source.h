#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "model/unit_layout.h"

namespace klotski {

// The source of the bytes of units: a model's files, or a substitute for them.
class UnitSource {
 public:
  virtual ~UnitSource() = default;

  // Fills a buffer as the layout's reads would. Bytes that have to be computed are made on the
  // threads of `cpu`. One thread at a time.
  virtual void read(const WeightUnit& unit, const UnitLayout& layout, std::span<std::byte> buffer,
                    const Processor& cpu) = 0;

  // Bytes of memory that the source will take for itself once it is used, besides bytes that it has
  // taken before.
  virtual uint64_t memory_bytes() const { return 0; }
};

}  // namespace klotski
