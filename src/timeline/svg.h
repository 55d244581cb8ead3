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

// A drawing of one block with its captions.
struct TimelinePicture {
  std::span<const TimelineSpan> spans;
  TimelineBlock block{};
  std::string_view title{};
  std::string_view settings{};  // model, limits and settings in one line; empty: none
  // A prediction of the same work: its typical block is drawn below the other, on one scale.
  std::span<const TimelineSpan> planned{};
};

// Draws one block to scale: a row for each lane that has something to show, boxes coloured by the
// kind of work, bubbles of the compute lane hatched and added up, a sentence of conclusion. Work of
// other blocks that overlaps the block in time is drawn pale. Light or dark as the reader's system.
// The caller checks the stream. A block without spans gives a drawing that says so.
void write_timeline_svg(std::ostream& out, const TimelinePicture& picture);

// The block to draw as a typical one: the block of median duration among those of the last step
// (the shorter of the two in the middle). None where no computing was recorded.
std::optional<TimelineBlock> longest_typical_block(std::span<const TimelineSpan> spans);

}  // namespace klotski
