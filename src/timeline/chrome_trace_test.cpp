#include "timeline/chrome_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "base/json.h"
#include "timeline/load_use.h"
#include "timeline/testing.h"

namespace klotski {
namespace {

using namespace testing_timeline;

Json trace_of(const std::vector<TimelineSpan>& spans) {
  std::ostringstream out;
  write_chrome_trace(out, spans);
  return parse_json(out.str(), "trace");
}

TEST(ChromeTrace, EventsAddUpToTheSpans) {
  const std::vector<TimelineSpan> spans = random_spans(11, 500);
  std::map<size_t, double> busy;  // nanoseconds by track
  size_t events = 0;
  const Json trace = trace_of(spans);
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const TimelineSpan& span = spans[events++];
    EXPECT_NEAR(event["ts"].get<double>() * 1000, static_cast<double>(span.start.count()), 1e-3);
    EXPECT_EQ(event["args"]["step"], span.step);
    EXPECT_EQ(event["args"]["layer"], span.layer);
    EXPECT_EQ(event["args"].contains("expert"), span.expert >= 0);
    EXPECT_EQ(event["args"].contains("waited_for"), span.waited_for.has_value());
    busy[event["tid"].get<size_t>()] += event["dur"].get<double>() * 1000;
  }
  EXPECT_EQ(events, spans.size());
  for (size_t lane = 0; lane < kNamedLanes.size(); ++lane) {
    int64_t expected = 0;
    for (const TimelineSpan& span : spans) {
      if (span.lane == kNamedLanes[lane]) expected += span.duration().count();
    }
    EXPECT_EQ(std::llround(busy[lane + 1]), expected);
  }
}

TEST(ChromeTrace, OnlyLanesWithSpansGetATrackAndKeepTheirOrder) {
  const Json trace = trace_of({span_of(Lane::kKvOut, "store", 5, 6),
                               of_expert(span_of(Lane::kCompute, "expert", 1, 3), 7)});
  std::vector<std::string> names;
  std::vector<int> order;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"]);
    if (event["name"] == "thread_sort_index") order.push_back(event["args"]["sort_index"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "KV out"}));
  ASSERT_EQ(order.size(), 2u);
  EXPECT_LT(order[0], order[1]);
  EXPECT_EQ(trace["traceEvents"].back()["name"], "expert 7");
  EXPECT_EQ(trace["traceEvents"].back()["dur"], 2.0);
}

TEST(ChromeTrace, ArgumentsAndEscapes) {
  TimelineSpan span =
      waiting(span_of(Lane::kCompute, "a \"quoted\"\n\xff work", 0, 1), Lane::kHostCopy);
  span.bytes = 18'000'000'000'000'000'000u;
  span.micro_batch = 4;
  const Json event = trace_of({span})["traceEvents"].back();
  EXPECT_EQ(event["args"]["bytes"], span.bytes);
  EXPECT_EQ(event["args"]["micro_batch"], 4);
  EXPECT_EQ(event["args"]["waited_for"], "host copy");
  EXPECT_EQ(event["name"], "a \"quoted\"\n\xef\xbf\xbd work");
}

// A disk read of expert 7, its copy to the device and its use, beside an unused load.
TEST(ChromeTrace, ArrowsAndCountersFollowLoadsToTheirUse) {
  std::vector<TimelineSpan> spans = {of_expert(span_of(Lane::kDiskRead, "load expert", 0, 10), 7),
                                     of_expert(span_of(Lane::kDiskRead, "load expert", 10, 30), 8),
                                     of_expert(span_of(Lane::kToDevice, "load expert", 15, 20), 7),
                                     of_expert(span_of(Lane::kCompute, "expert", 25, 40), 7)};
  spans[0].bytes = 100;
  spans[1].bytes = 50;
  spans[2].bytes = 100;
  std::map<std::string, std::vector<double>> counters;
  std::vector<std::pair<double, double>> arrows;
  std::string process;
  const Json trace = trace_of(spans);
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") process = event["args"]["name"];
    if (event["ph"] == "C") counters[event["name"]].push_back(event["args"]["value"]);
    if (event["ph"] == "s") arrows.emplace_back(event["ts"], -1);
    if (event["ph"] == "f") arrows.at(event["id"].get<size_t>() - 1).second = event["ts"];
  }
  EXPECT_EQ(process, "klotski");
  EXPECT_EQ(arrows, (std::vector<std::pair<double, double>>{{0, 15}, {15, 25}}));
  EXPECT_EQ(counters["bytes: disk read"], (std::vector<double>{100, 150}));
  EXPECT_EQ(counters["bytes: to device"], (std::vector<double>{100}));
  EXPECT_EQ(counters["loads waiting for their use"], (std::vector<double>{1, 0, 1, 0}));
}

TEST(LoadUse, OneCallUsesAllExpertsThatHaveCome) {
  const std::vector<TimelineSpan> spans = {
      span_of(Lane::kCompute, "expert", 25, 40),
      of_expert(span_of(Lane::kDiskRead, "load expert", 0, 10), 7),
      of_expert(span_of(Lane::kDiskRead, "load expert", 10, 20), 8),
      of_expert(span_of(Lane::kDiskRead, "load expert", 20, 30), 9)};
  const std::vector<LoadUse> uses = uses_of_loads(spans);
  ASSERT_EQ(uses.size(), 2u);
  for (const LoadUse& one : uses) EXPECT_EQ(one.use, 0u);
}

TEST(LoadUse, ALoadThatIsRepeatedUnusedHasNoUse) {
  const std::vector<TimelineSpan> spans = {
      span_of(Lane::kDiskRead, "load gate", 0, 10), span_of(Lane::kDiskRead, "load gate", 10, 20),
      span_of(Lane::kCompute, "gate", 20, 30), span_of(Lane::kCompute, "gate", 30, 40)};
  const std::vector<LoadUse> uses = uses_of_loads(spans);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].load, 1u);
  EXPECT_EQ(uses[0].use, 2u);
}

TEST(ChromeTrace, NoSpans) { EXPECT_TRUE(trace_of({})["traceEvents"].empty()); }

}  // namespace
}  // namespace klotski
