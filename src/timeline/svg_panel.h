#pragma once

#include <chrono>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "timeline/lane_map.h"
#include "timeline/svg_block.h"

namespace klotski {

// Heights in a drawing, in pixels.
inline constexpr double kRowPitch = 46;    // from one lane to the next
inline constexpr double kAxisHeight = 46;  // below the last lane
inline constexpr double kTextRow = 22;     // settings, the heading of a panel, the conclusion

inline double milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e6;
}

// One block of a drawing.
struct Panel {
  BlockView view;
  TimelineBlock block;
  std::string_view heading;                        // empty where there is only one panel
  LaneMap<std::vector<const TimelineSpan*>> rows;  // spans by lane

  Panel(std::span<const TimelineSpan> spans, TimelineBlock shown, std::string_view name)
      : view(view_block(spans, shown)), block(shown), heading(name) {
    for (const TimelineSpan& span : view.spans) rows.at(span.lane).push_back(&span);
  }
  Panel(const Panel&) = delete;  // the rows point into the view
  Panel& operator=(const Panel&) = delete;

  double height() const {
    return (heading.empty() ? 0 : kTextRow) + kRowPitch * static_cast<double>(rows.size()) +
           kAxisHeight;
  }
  double window() const { return milliseconds(view.end - view.start); }
};

// The spans of all panels.
inline std::vector<TimelineSpan> spans_of(const std::deque<Panel>& panels) {
  std::vector<TimelineSpan> spans;
  for (const Panel& panel : panels) {
    spans.insert(spans.end(), panel.view.spans.begin(), panel.view.spans.end());
  }
  return spans;
}

}  // namespace klotski
