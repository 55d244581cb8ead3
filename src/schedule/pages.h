#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/units.h"

namespace klotski {

// Part of a unit's own bytes.
struct PagePiece {
  WeightUnit unit;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct PagedUnit {
  WeightUnit unit;
  uint64_t bytes = 0;
};

// The weights of a layer as pages of nearly equal size, one after the other through its units: page
// -> pieces (MoE-Lightning, section 4.1: as many pages as micro-batches, so that small copies go
// between them).
using PageTable = std::vector<std::vector<PagePiece>>;

PageTable page_table(std::span<const PagedUnit> units, int64_t pages);

}  // namespace klotski
