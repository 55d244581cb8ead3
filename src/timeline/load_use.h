#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "timeline/span.h"

namespace klotski {

// A transfer of weights, and the work that first used them where they arrived: computing, or the
// transfer to the next memory. Indices of spans.
struct LoadUse {
  size_t load = 0;
  size_t use = 0;
};

// Every load with its first use, by the start of the use. A load that nothing used before the same
// weights were loaded again has none. Spans in any order.
std::vector<LoadUse> uses_of_loads(std::span<const TimelineSpan> spans);

}  // namespace klotski
