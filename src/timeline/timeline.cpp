#include "timeline/timeline.h"

#include <algorithm>

#include "timeline/bubble.h"

namespace klotski {

namespace {

// Calls change(number, number of `other` in the same field) for every number of the totals.
template <typename Change>
TimelineTotals& change_all(TimelineTotals& totals, const TimelineTotals& other,
                           const Change& change) {
  for (const auto& [lane, of_other] : other.lanes) {
    LaneTotals& of_lane = totals.lanes.at(lane);
    change(of_lane.busy, of_other.busy);
    change(of_lane.spans, of_other.spans);
    change(of_lane.bytes, of_other.bytes);
  }
  change(totals.elapsed, other.elapsed);
  change(totals.inter_layer, other.inter_layer);
  change(totals.intra_layer, other.intra_layer);
  return totals;
}

template <typename Count>
Count times(Count count, double factor) {
  return static_cast<Count>(static_cast<double>(count) * factor);
}
std::chrono::nanoseconds times(std::chrono::nanoseconds time, double factor) {
  return std::chrono::nanoseconds(times(time.count(), factor));
}

}  // namespace

std::vector<Lane> TimelineTotals::used_lanes() const {
  std::vector<Lane> used;
  for (const auto& [lane, totals] : lanes) {
    if (totals.spans > 0) used.push_back(lane);
  }
  return used;
}

LaneTotals TimelineTotals::lane(Lane lane) const {
  const LaneTotals* found = lanes.find(lane);
  return found ? *found : LaneTotals{};
}

TimelineTotals& TimelineTotals::operator+=(const TimelineTotals& other) {
  return change_all(*this, other, [](auto& a, const auto& b) { a += b; });
}

TimelineTotals& TimelineTotals::operator-=(const TimelineTotals& other) {
  return change_all(*this, other, [](auto& a, const auto& b) { a -= b; });
}

TimelineTotals& TimelineTotals::operator*=(double factor) {
  return change_all(*this, *this, [&](auto& a, const auto&) { a = times(a, factor); });
}

Timeline::Timeline(int64_t keep_spans)
    : keep_spans_(static_cast<size_t>(std::max<int64_t>(keep_spans, 0))),
      start_(std::chrono::steady_clock::now()) {}

void Timeline::record(const TimelineSpan& span) {
  const std::lock_guard lock(mutex_);
  add_to_totals(span);
  keep(span);
  ++recorded_;
}

void Timeline::add_to_totals(const TimelineSpan& span) {
  LaneTotals& lane = totals_.lanes.at(span.lane);
  lane.busy += span.duration();
  lane.bytes += span.bytes;
  ++lane.spans;
  first_start_ = recorded_ == 0 ? span.start : std::min(first_start_, span.start);
  last_end_ = recorded_ == 0 ? span.end : std::max(last_end_, span.end);
  if (span.lane != Lane::kCompute) return;
  if (!last_compute_) {
    first_compute_ = span;
  } else if (const auto bubble = bubble_between(*last_compute_, span)) {
    (bubble->kind == BubbleKind::intra_layer ? totals_.intra_layer : totals_.inter_layer) +=
        bubble->end - bubble->start;
  }
  last_compute_ = span;
}

void Timeline::keep(const TimelineSpan& span) {
  if (kept_.size() < keep_spans_) {
    kept_.push_back(span);
  } else if (keep_spans_ > 0) {
    kept_[oldest_] = span;
    oldest_ = (oldest_ + 1) % keep_spans_;
  }
}

TimelineTotals Timeline::totals() const {
  const std::lock_guard lock(mutex_);
  TimelineTotals totals = totals_;
  totals.elapsed = last_end_ - first_start_;
  // Before the first computing, the wait began with the first transfer. That transfer may be
  // recorded late, so this part is added only here.
  if (first_compute_ && waited_for_transfer(*first_compute_)) {
    totals.inter_layer += first_compute_->start - first_start_;
  }
  return totals;
}

std::vector<TimelineSpan> Timeline::spans(size_t most) const {
  std::vector<TimelineSpan> spans;
  {
    const std::lock_guard lock(mutex_);
    // Oldest first, so that spans of one start stay in the order of recording.
    for (size_t i = kept_.size() - std::min(most, kept_.size()); i < kept_.size(); ++i) {
      spans.push_back(kept_[(oldest_ + i) % kept_.size()]);
    }
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TimelineSpan& a, const TimelineSpan& b) { return a.start < b.start; });
  return spans;
}

int64_t Timeline::dropped() const {
  const std::lock_guard lock(mutex_);
  return recorded_ - static_cast<int64_t>(kept_.size());
}

std::chrono::nanoseconds Timeline::now() const {
  const auto time = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time - start_);
}

void Timeline::restart() {
  const std::lock_guard lock(mutex_);
  start_ = std::chrono::steady_clock::now();
  kept_.clear();
  oldest_ = 0;
  recorded_ = 0;
  totals_ = TimelineTotals();
  first_compute_.reset();
  last_compute_.reset();
  first_start_ = last_end_ = std::chrono::nanoseconds(0);
}

}  // namespace klotski
