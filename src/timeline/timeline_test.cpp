#include "timeline/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "timeline/testing.h"

namespace klotski {
namespace {

using namespace testing_timeline;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TimelineTotals recorded(const std::vector<TimelineSpan>& spans) {
  Timeline timeline(0);
  for (const TimelineSpan& span : spans) timeline.record(span);
  return timeline.totals();
}

// The definition, from all spans at once.
TimelineTotals from_scratch(const std::vector<TimelineSpan>& spans) {
  TimelineTotals totals;
  if (spans.empty()) return totals;
  nanoseconds first = spans[0].start, last = spans[0].end;
  for (const TimelineSpan& span : spans) {
    LaneTotals& of_lane = totals.lanes.at(span.lane);
    of_lane.busy += span.end - span.start;
    of_lane.bytes += span.bytes;
    of_lane.spans += 1;
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  totals.elapsed = last - first;
  std::vector<TimelineSpan> compute;
  for (const TimelineSpan& span : spans) {
    if (span.lane == Lane::kCompute) compute.push_back(span);
  }
  for (size_t i = 0; i < compute.size(); ++i) {
    const TimelineSpan& span = compute[i];
    if (!span.waited_for || span.waited_for == Lane::kCompute) continue;
    const nanoseconds gap = span.start - (i == 0 ? first : compute[i - 1].end);
    const bool intra = i > 0 && span.is_expert_work && compute[i - 1].is_expert_work &&
                       span.step == compute[i - 1].step && span.layer == compute[i - 1].layer;
    (intra ? totals.intra_layer : totals.inter_layer) += gap;
  }
  return totals;
}

void expect_same(const TimelineTotals& a, const TimelineTotals& b) {
  EXPECT_EQ(a.used_lanes(), b.used_lanes());
  for (const Lane lane : a.used_lanes()) {
    EXPECT_EQ(a.lane(lane).busy, b.lane(lane).busy);
    EXPECT_EQ(a.lane(lane).spans, b.lane(lane).spans);
    EXPECT_EQ(a.lane(lane).bytes, b.lane(lane).bytes);
  }
  EXPECT_EQ(a.elapsed, b.elapsed);
  EXPECT_EQ(a.inter_layer, b.inter_layer);
  EXPECT_EQ(a.intra_layer, b.intra_layer);
}

TEST(Timeline, TotalsAreThoseOfTheDefinition) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<TimelineSpan> spans = random_spans(seed, 1 + static_cast<int>(seed));
    expect_same(recorded(spans), from_scratch(spans));
  }
}

TEST(Timeline, RandomSpansHaveBubblesOfBothKinds) {
  const TimelineTotals totals = recorded(random_spans(1, 400));
  EXPECT_GT(totals.inter_layer.count(), 0);
  EXPECT_GT(totals.intra_layer.count(), 0);
  EXPECT_EQ(totals.bubbles(), totals.inter_layer + totals.intra_layer);
}

TEST(Timeline, BubblesByKind) {
  const TimelineTotals totals = recorded({
      span_of(Lane::kCompute, "attention", 0, 10),
      waiting(span_of(Lane::kCompute, "gate", 15, 20), Lane::kDiskRead),    // inter: 5
      waiting(span_of(Lane::kCompute, "expert", 27, 30), Lane::kHostCopy),  // inter: 7
      waiting(span_of(Lane::kCompute, "expert", 41, 50), Lane::kDiskRead),  // intra: 11
      span_of(Lane::kCompute, "expert", 63, 64),                            // waited for nothing
      // Waits for computing.
      waiting(span_of(Lane::kCompute, "combine", 70, 71), Lane::kCompute),
      waiting(span_of(Lane::kCompute, "attention", 71, 90), Lane::kDiskRead)  // no gap
  });
  EXPECT_EQ(totals.inter_layer, microseconds(12));
  EXPECT_EQ(totals.intra_layer, microseconds(11));
}

TEST(Timeline, ExpertsOfAnotherLayerOrStepAreNotIntraLayer) {
  for (const bool other_layer : {true, false}) {
    TimelineSpan next = waiting(span_of(Lane::kCompute, "expert", 20, 30), Lane::kDiskRead);
    (other_layer ? next.layer : next.micro_batch) = 1;
    if (!other_layer) next.step = 1;
    const TimelineTotals totals = recorded({span_of(Lane::kCompute, "expert", 0, 10), next});
    EXPECT_EQ(totals.inter_layer, microseconds(10));
    EXPECT_EQ(totals.intra_layer.count(), 0);
  }
}

TEST(Timeline, TheFirstComputingWaitsSinceTheFirstTransferHoweverLateThatIsRecorded) {
  const TimelineSpan compute =
      waiting(span_of(Lane::kCompute, "attention", 30, 40), Lane::kDiskRead);
  const TimelineSpan load = span_of(Lane::kDiskRead, "load attention", 5, 30);
  for (const auto& order : {std::vector{compute, load}, std::vector{load, compute}}) {
    EXPECT_EQ(recorded(order).inter_layer, microseconds(25));
    EXPECT_EQ(recorded(order).elapsed, microseconds(35));
  }
}

TEST(Timeline, NothingRecorded) {
  Timeline timeline(10);
  expect_same(timeline.totals(), TimelineTotals());
  EXPECT_TRUE(timeline.spans().empty());
  EXPECT_EQ(timeline.dropped(), 0);
}

TEST(Timeline, KeepsTheLatestSpansByStart) {
  for (const int keep : {0, 1, 7, 99, 100, 101}) {
    Timeline timeline(keep);
    std::vector<TimelineSpan> spans = random_spans(5, 100);
    for (const TimelineSpan& span : spans) timeline.record(span);
    const auto kept = static_cast<size_t>(std::min(keep, 100));
    std::vector<TimelineSpan> expected(spans.end() - static_cast<std::ptrdiff_t>(kept),
                                       spans.end());
    std::stable_sort(
        expected.begin(), expected.end(),
        [](const TimelineSpan& a, const TimelineSpan& b) { return a.start < b.start; });
    const std::vector<TimelineSpan> found = timeline.spans();
    ASSERT_EQ(found.size(), kept);
    for (size_t i = 0; i < kept; ++i) {
      EXPECT_EQ(found[i].start, expected[i].start);
      EXPECT_EQ(found[i].lane, expected[i].lane);
    }
    const auto latest = std::min<size_t>(kept, 3);
    EXPECT_EQ(timeline.spans(3).size(), latest);
    for (const TimelineSpan& span : timeline.spans(3)) {
      const auto same = [&](const TimelineSpan& other) { return other.start == span.start; };
      EXPECT_TRUE(
          std::any_of(spans.end() - static_cast<std::ptrdiff_t>(latest), spans.end(), same));
    }
    EXPECT_EQ(timeline.dropped(), 100 - static_cast<int64_t>(kept));
    expect_same(timeline.totals(), from_scratch(spans));
  }
}

TEST(Timeline, RestartForgetsEverything) {
  Timeline timeline(10);
  for (const TimelineSpan& span : random_spans(3, 50)) timeline.record(span);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const nanoseconds before = timeline.now();
  timeline.restart();
  EXPECT_LT(timeline.now(), before);
  expect_same(timeline.totals(), TimelineTotals());
  EXPECT_TRUE(timeline.spans().empty());
  EXPECT_EQ(timeline.dropped(), 0);
  const std::vector<TimelineSpan> spans = random_spans(4, 50);
  for (const TimelineSpan& span : spans) timeline.record(span);
  expect_same(timeline.totals(), from_scratch(spans));
}

TEST(Timeline, ManyThreadsRecordAtOnce) {
  constexpr int kThreads = 4, kEach = 5000;
  Timeline timeline(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&timeline, t] {
      for (int i = 0; i < kEach; ++i) {
        TimelineSpan span = span_of(kNamedLanes[static_cast<size_t>(t)], "load expert", i, i + 1);
        span.bytes = 3;
        timeline.record(span);
        if (i % 100 == 0) (void)timeline.totals(), (void)timeline.spans();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const TimelineTotals totals = timeline.totals();
  for (size_t lane = 0; lane < kThreads; ++lane) {
    const LaneTotals of_lane = totals.lane(kNamedLanes[lane]);
    EXPECT_EQ(of_lane.spans, kEach);
    EXPECT_EQ(of_lane.busy, microseconds(kEach));
    EXPECT_EQ(of_lane.bytes, 3u * kEach);
  }
  EXPECT_EQ(totals.elapsed, microseconds(kEach));
  EXPECT_EQ(timeline.spans().size(), 1000u);
  EXPECT_EQ(timeline.dropped(), kThreads * kEach - 1000);
}

TEST(Timeline, TotalsOfOneMachineAddToThoseOfAnother) {
  const Lane second = compute_lane({TierKind::compute, 1});
  TimelineTotals totals = recorded({span_of(Lane::kCompute, "expert", 0, 10)});
  totals += recorded({span_of(second, "expert", 0, 7)});
  EXPECT_EQ(totals.used_lanes(), (std::vector{Lane::kCompute, second}));
  EXPECT_EQ(totals.lane(second).busy, microseconds(7));
  EXPECT_EQ(totals.lane(Lane::kCpu).spans, 0);
  totals -= recorded({span_of(second, "expert", 0, 7)});
  EXPECT_EQ(totals.used_lanes(), std::vector{Lane::kCompute});
  totals *= 0.5;
  EXPECT_EQ(totals.lane(Lane::kCompute).busy, microseconds(5));
}

}  // namespace
}  // namespace klotski
