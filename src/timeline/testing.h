#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "timeline/span.h"

// Helpers of the tests of this folder only.
namespace klotski::testing_timeline {

inline constexpr std::array kNamedLanes = {Lane::kCompute,  Lane::kCpu,    Lane::kToDevice,
                                           Lane::kRowsDown, Lane::kRowsUp, Lane::kDiskRead,
                                           Lane::kHostCopy, Lane::kKvIn,   Lane::kKvOut};

inline TimelineSpan span_of(Lane lane, std::string_view work, int64_t start_us, int64_t end_us) {
  TimelineSpan span;
  span.lane = lane;
  span.work = work;
  span.layer = 0;
  span.is_expert_work = work == "expert";
  span.start = std::chrono::microseconds(start_us);
  span.end = std::chrono::microseconds(end_us);
  return span;
}

inline TimelineSpan waiting(TimelineSpan span, Lane lane) {
  span.waited_for = lane;
  return span;
}

inline TimelineSpan of_expert(TimelineSpan span, int32_t expert) {
  span.expert = expert;
  return span;
}

// Lanes without overlap, two steps of two layers each, in the order of recording.
inline std::vector<TimelineSpan> random_spans(uint32_t seed, int count) {
  std::mt19937 random(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<uint32_t>(bound));
  };
  const auto any_lane = [&] {
    return static_cast<size_t>(below(static_cast<int>(kNamedLanes.size())));
  };
  std::array<std::chrono::nanoseconds, kNamedLanes.size()> ends{};
  std::vector<TimelineSpan> spans;
  for (int i = 0; i < count; ++i) {
    TimelineSpan span;
    const size_t lane = any_lane();
    span.lane = kNamedLanes[lane];
    span.is_expert_work = span.lane == Lane::kCompute && below(3) > 0;
    span.work = span.is_expert_work           ? "expert"
                : span.lane == Lane::kCompute ? "attention"
                                              : "load expert";
    span.step = i * 2 / count;
    span.layer = i * 4 / count % 2;
    span.expert = below(3) - 1;
    span.bytes = static_cast<uint64_t>(below(1000));
    auto& end = ends[lane];
    span.start = end + std::chrono::nanoseconds(below(3) * below(500));
    span.end = end = span.start + std::chrono::nanoseconds(below(2000));
    if (below(2) > 0) span.waited_for = kNamedLanes[any_lane()];
    spans.push_back(span);
  }
  return spans;
}

}  // namespace klotski::testing_timeline
