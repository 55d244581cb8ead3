#include <fmt/format.h>

#include <algorithm>

#include "timeline/lane_map.h"
#include "timeline/svg_block.h"

namespace klotski {

namespace {

constexpr double kHardlyAny = 1.0;  // percent

double bubble_percent(const BlockView& view) {
  return view.compute_time.count() <= 0 ? 0.0
                                        : 100.0 * static_cast<double>(view.bubble_time().count()) /
                                              static_cast<double>(view.compute_time.count());
}

// The lane that the block's computing waited for longest; nothing where it did not wait.
std::optional<Lane> lane_waited_for(const BlockView& view) {
  LaneMap<std::chrono::nanoseconds> waits;
  for (const Bubble& bubble : view.bubbles) {
    for (const TimelineSpan& span : view.spans) {
      if (span.lane != Lane::kCompute || span.start != bubble.end || !span.waited_for) continue;
      waits.at(*span.waited_for) += bubble.end - bubble.start;
      break;
    }
  }
  std::optional<Lane> longest;
  std::chrono::nanoseconds most{0};
  for (const auto& [lane, time] : waits) {
    if (time > most) most = time, longest = lane;
  }
  return longest;
}

}  // namespace

std::string conclusion_of(const BlockView& view, const BlockView* planned) {
  if (view.spans.empty()) return {};
  const double percent = bubble_percent(view);
  const std::optional<Lane> lane = lane_waited_for(view);
  std::string text =
      percent < kHardlyAny || !lane
          ? "Transfers are hidden: computing hardly waits for them."
          : fmt::format(
                "Computing waits {:.0f} % of the time, mostly for {}: that lane binds this layer.",
                percent, lane_name(*lane));
  if (planned == nullptr || planned->compute_time.count() <= 0) return text;
  const double ratio = static_cast<double>(view.compute_time.count()) /
                       static_cast<double>(planned->compute_time.count());
  return text + fmt::format(
                    " The layer took {:.2f} times as long as planned; the plan expected {:.0f} % "
                    "of waiting.",
                    ratio, bubble_percent(*planned));
}

}  // namespace klotski
