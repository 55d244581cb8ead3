#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "timeline/bubble.h"
#include "timeline/svg.h"

namespace klotski {

// The content of a drawing of one block.
struct BlockView {
  std::vector<TimelineSpan> spans;  // all that overlap the window, by start
  std::vector<Bubble> bubbles;
  std::chrono::nanoseconds start{0};  // the window
  std::chrono::nanoseconds end{0};
  // Time of the block's own computing, from the bubble before it to its last end.
  std::chrono::nanoseconds compute_time{0};

  std::chrono::nanoseconds bubble_time() const;
};

inline bool is_of(const TimelineSpan& span, TimelineBlock block) {
  return span.step == block.step && span.layer == block.layer;
}

BlockView view_block(std::span<const TimelineSpan> spans, TimelineBlock block);

// How long computing waited in the block and for what, in a sentence; empty without spans. With a
// plan, the block's time beside the planned one as well.
std::string conclusion_of(const BlockView& view, const BlockView* planned = nullptr);

}  // namespace klotski
