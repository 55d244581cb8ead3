#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "timeline/lane_map.h"
#include "timeline/span.h"

namespace klotski {

inline double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

struct LaneTotals {
  std::chrono::nanoseconds busy{0};
  int64_t spans = 0;
  uint64_t bytes = 0;
};

struct TimelineTotals {
  LaneMap<LaneTotals> lanes{};          // lanes with spans
  std::chrono::nanoseconds elapsed{0};  // from the first start to the last end
  // Idle time of Lane::kCompute before spans that waited for a transfer; see bubble.h.
  std::chrono::nanoseconds inter_layer{0};
  std::chrono::nanoseconds intra_layer{0};

  LaneTotals lane(Lane lane) const;      // zeros where it has no spans
  std::vector<Lane> used_lanes() const;  // lanes with spans, in their order
  TimelineTotals& operator+=(const TimelineTotals& other);
  TimelineTotals& operator-=(const TimelineTotals& other);  // subtracts earlier totals
  TimelineTotals& operator*=(double factor);

  std::chrono::nanoseconds bubbles() const { return inter_layer + intra_layer; }
  double percent(std::chrono::nanoseconds part) const {  // percent of the elapsed time
    return elapsed.count() == 0
               ? 0.0
               : 100.0 * static_cast<double>(part.count()) / static_cast<double>(elapsed.count());
  }
};

// A record of the work on every lane. Totals cover everything recorded; only the latest spans are
// kept. Every member may be called from any thread.
class Timeline {
 public:
  // Keeps at most keep_spans spans; 0: totals only.
  explicit Timeline(int64_t keep_spans);

  // Spans of the compute lane must come in the order in which they ran; others in any order.
  void record(const TimelineSpan& span);

  TimelineTotals totals() const;
  // The `most` latest of the kept spans, by start.
  std::vector<TimelineSpan> spans(size_t most = SIZE_MAX) const;
  int64_t dropped() const;  // how many were recorded and not kept

  std::chrono::nanoseconds now() const;  // since the timeline's start
  void restart();                        // forgets everything; the start is now

 private:
  void add_to_totals(const TimelineSpan& span);
  void keep(const TimelineSpan& span);

  const size_t keep_spans_;
  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point start_;
  std::vector<TimelineSpan> kept_;  // once full, a ring that overwrites its oldest entry
  size_t oldest_ = 0;
  int64_t recorded_ = 0;
  TimelineTotals totals_;  // all but elapsed and the wait before the first computing
  std::chrono::nanoseconds first_start_{0};
  std::chrono::nanoseconds last_end_{0};
  std::optional<TimelineSpan> first_compute_;
  std::optional<TimelineSpan> last_compute_;
};

}  // namespace klotski
