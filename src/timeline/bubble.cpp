#include "timeline/bubble.h"

namespace klotski {

bool waited_for_transfer(const TimelineSpan& span) {
  return span.lane == Lane::kCompute && span.waited_for && *span.waited_for != Lane::kCompute;
}

std::optional<Bubble> bubble_between(const TimelineSpan& previous, const TimelineSpan& next) {
  if (!waited_for_transfer(next) || next.start <= previous.end) return std::nullopt;
  const bool same_experts = previous.is_expert_work && next.is_expert_work &&
                            previous.step == next.step && previous.layer == next.layer;
  return Bubble{same_experts ? BubbleKind::intra_layer : BubbleKind::inter_layer, previous.end,
                next.start};
}

}  // namespace klotski
