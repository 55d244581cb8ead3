#pragma once

#include <ostream>
#include <span>

#include "planner/preview.h"

namespace klotski {

// Draws a row for each layer: its attention, gate and dense part, then its experts, in a stronger
// colour the more often they lie in memory. Shares are rounded to tenths, where 0 and 1 are only
// themselves, and neighbours alike are one box, so that thousands of experts stay a small drawing.
// Units without a number for a share are left out. The caller checks the stream; colours come from
// the page.
void write_placement_svg(std::ostream& out, std::span<const PreviewedUnit> placement);

}  // namespace klotski
