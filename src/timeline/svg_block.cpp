#include "timeline/svg_block.h"

#include <algorithm>
#include <map>
#include <utility>

namespace klotski {

namespace {

using std::chrono::nanoseconds;

bool starts_before(const TimelineSpan& a, const TimelineSpan& b) { return a.start < b.start; }

// The time from the bubble before a block's computing to the end of its computing.
struct ComputeTime {
  nanoseconds start;
  nanoseconds end;
  nanoseconds duration() const { return end - start; }
};

// The bubbles that end in a block's computing, by start; `visit` also gets the computing itself.
template <typename Visit>
void visit_compute(const std::vector<TimelineSpan>& by_start, Visit visit) {
  const TimelineSpan* previous = nullptr;
  for (const TimelineSpan& span : by_start) {
    if (span.lane != Lane::kCompute) continue;
    visit(span, previous ? bubble_between(*previous, span) : std::nullopt);
    previous = &span;
  }
}

}  // namespace

nanoseconds BlockView::bubble_time() const {
  nanoseconds sum{0};
  for (const Bubble& bubble : bubbles) sum += bubble.end - bubble.start;
  return sum;
}

BlockView view_block(std::span<const TimelineSpan> spans, TimelineBlock block) {
  std::vector<TimelineSpan> by_start(spans.begin(), spans.end());
  std::stable_sort(by_start.begin(), by_start.end(), starts_before);
  BlockView view;
  std::optional<ComputeTime> computing;
  visit_compute(by_start, [&](const TimelineSpan& span, const std::optional<Bubble>& bubble) {
    if (!is_of(span, block)) return;
    if (bubble) view.bubbles.push_back(*bubble);
    const nanoseconds start = bubble ? bubble->start : span.start;
    if (!computing) computing = ComputeTime{start, span.end};
    computing->end = std::max(computing->end, span.end);
  });
  if (computing) view.compute_time = computing->duration();

  bool any = computing.has_value();
  if (any) view.start = computing->start, view.end = computing->end;
  for (const TimelineSpan& span : by_start) {
    if (!is_of(span, block)) continue;
    view.start = any ? std::min(view.start, span.start) : span.start;
    view.end = any ? std::max(view.end, span.end) : span.end;
    any = true;
  }
  for (const TimelineSpan& span : by_start) {
    const bool overlaps = span.start < view.end && span.end > view.start;
    if (is_of(span, block) || (any && overlaps)) view.spans.push_back(span);
  }
  return view;
}

std::optional<TimelineBlock> longest_typical_block(std::span<const TimelineSpan> spans) {
  std::vector<TimelineSpan> by_start(spans.begin(), spans.end());
  std::stable_sort(by_start.begin(), by_start.end(), starts_before);
  std::optional<int64_t> last_step;
  for (const TimelineSpan& span : by_start) {
    if (span.lane == Lane::kCompute && span.layer >= 0) {
      last_step = std::max(last_step.value_or(span.step), span.step);
    }
  }
  if (!last_step) return std::nullopt;

  std::map<int32_t, ComputeTime> times;  // times by layer
  visit_compute(by_start, [&](const TimelineSpan& span, const std::optional<Bubble>& bubble) {
    if (span.step != *last_step || span.layer < 0) return;
    const nanoseconds start = bubble ? bubble->start : span.start;
    ComputeTime& time = times.try_emplace(span.layer, ComputeTime{start, span.end}).first->second;
    time.end = std::max(time.end, span.end);
  });
  std::vector<std::pair<nanoseconds, int32_t>> durations;
  for (const auto& [layer, time] : times) durations.emplace_back(time.duration(), layer);
  std::sort(durations.begin(), durations.end());
  return TimelineBlock{*last_step, durations[(durations.size() - 1) / 2].second};
}

}  // namespace klotski
