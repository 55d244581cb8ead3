#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>

#include "timeline/span.h"

namespace klotski {

// One layer of one step: attention, gate and experts of all its micro-batches.
struct TimelineBlock {
  int64_t step = 0;
  int32_t layer = 0;
};

// Draws one block to scale: a row for each lane that has something to show, boxes coloured by the
// kind of work, bubbles of the compute lane hatched and added up. Work of other blocks that
// overlaps the block in time is drawn pale. The caller checks the stream. A block without spans
// gives a drawing that says so.
void write_timeline_svg(std::ostream& out, std::span<const TimelineSpan> spans, TimelineBlock block,
                        std::string_view title);

// The block to draw as a typical one: the block of median duration among those of the last step
// (the shorter of the two in the middle). None where no computing was recorded.
std::optional<TimelineBlock> longest_typical_block(std::span<const TimelineSpan> spans);

}  // namespace klotski
