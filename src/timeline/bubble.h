#pragma once

#include <chrono>
#include <optional>

#include "timeline/span.h"

namespace klotski {

// Time in which Lane::kCompute, which the first compute tier has, was idle because a transfer, or
// the processor of another tier, had not finished. Inside the experts
// of one layer it is an intra-layer bubble, anywhere else an inter-layer one.
enum class BubbleKind { inter_layer, intra_layer };

struct Bubble {
  BubbleKind kind;
  std::chrono::nanoseconds start;
  std::chrono::nanoseconds end;
};

// Whether the span is one of the compute lane that had to wait for a transfer.
bool waited_for_transfer(const TimelineSpan& span);

// The bubble between two successive spans of the compute lane, if there is one. A gap whose end
// waited for nothing, or for other computing, is no bubble.
std::optional<Bubble> bubble_between(const TimelineSpan& previous, const TimelineSpan& next);

}  // namespace klotski
