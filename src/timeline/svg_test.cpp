#include "timeline/svg.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "timeline/svg_block.h"
#include "timeline/testing.h"

namespace klotski {
namespace {

using namespace testing_timeline;
using std::chrono::microseconds;

std::string svg_of(const std::vector<TimelineSpan>& spans, TimelineBlock block = {},
                   std::string_view title = "one block") {
  std::ostringstream out;
  write_timeline_svg(out, {.spans = spans, .block = block, .title = title});
  return out.str();
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Tags nest and close, text has no stray < or &.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&') {
      const std::string entity = xml.substr(at, xml.find(';', at) - at + 1);
      EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;")
          << entity;
    }
    if (xml[at] != '<') continue;
    const size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    EXPECT_EQ(occurrences(tag, "\"") % 2, 0u) << tag;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  EXPECT_TRUE(open.empty());
}

// Attention, gate, a resident expert and an expert that is waited for, while the next layer's load
// runs.
std::vector<TimelineSpan> small_block() {
  TimelineSpan next = span_of(Lane::kDiskRead, "load attention", 9000, 14000);
  next.layer = 1;
  return {span_of(Lane::kDiskRead, "load gate", 0, 1000),
          span_of(Lane::kCompute, "attention", 0, 2000),
          of_expert(span_of(Lane::kDiskRead, "load expert", 1000, 9000), 12),
          waiting(span_of(Lane::kCompute, "gate", 2500, 3000), Lane::kDiskRead),
          of_expert(span_of(Lane::kCompute, "expert", 3000, 6000), 5),
          waiting(of_expert(span_of(Lane::kCompute, "expert", 9000, 12000), 12), Lane::kDiskRead),
          next};
}

TEST(TimelineSvg, ShowsLanesWorkExpertsAndBubbles) {
  const std::string svg = svg_of(small_block());
  expect_well_formed(svg);
  for (const char* part :
       {">one block<", ">compute<", ">disk read<", ">attention<", ">load expert<", ">12<", ">5<",
        ">bubble<", ">ms<", "step 0, layer 0: 12.000 ms; bubbles 3.500 ms (29.2%)",
        "intra-layer bubble, 3.000 ms", "inter-layer bubble, 0.500 ms"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(occurrences(svg, R"(class="bubble")"), 2u);
  EXPECT_EQ(occurrences(svg, R"(opacity="0.35")"), 1u);  // the next layer's load
  EXPECT_EQ(svg.find(">host copy<"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(TimelineSvg, IsToScale) {
  const std::string svg = svg_of(small_block());
  // The window is 12 ms on 1076 pixels from 100 on: the second expert takes its last quarter.
  EXPECT_NE(svg.find(R"(<rect x="907.00" y="100.00" width="269.00")"), std::string::npos) << svg;
}

TEST(TimelineSvg, NarrowBoxesHaveNoNumber) {
  const std::string svg = svg_of({of_expert(span_of(Lane::kCompute, "expert", 0, 10), 77),
                                  of_expert(span_of(Lane::kCompute, "expert", 10, 9000), 88)});
  EXPECT_EQ(svg.find(">77<"), std::string::npos);
  EXPECT_NE(svg.find(">88<"), std::string::npos);
}

TEST(TimelineSvg, TextIsEscaped) {
  const std::string svg = svg_of(small_block(), {}, "a < b & \"c\"\n\x01\xff");
  expect_well_formed(svg);
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
}

TEST(TimelineSvg, RandomAndEmptyBlocksAreWellFormed) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    expect_well_formed(svg_of(random_spans(seed, 60), {1, 0}));
  }
  const std::string empty = svg_of({}, {3, 4});
  expect_well_formed(empty);
  EXPECT_NE(empty.find("step 3, layer 4: nothing was recorded"), std::string::npos);
  expect_well_formed(svg_of({span_of(Lane::kCompute, "gate", 5, 5)}));  // no width at all
}

TEST(TimelineSvg, TheBlockStartsWithItsOwnTransfersAndTheBubbleBeforeIt) {
  TimelineSpan before = span_of(Lane::kCompute, "expert", 0, 100);
  before.layer = -1;
  const BlockView view = view_block(
      std::vector<TimelineSpan>{
          before, span_of(Lane::kDiskRead, "load attention", 50, 200),
          waiting(span_of(Lane::kCompute, "attention", 200, 300), Lane::kDiskRead)},
      TimelineBlock{});
  EXPECT_EQ(view.start, microseconds(50));
  EXPECT_EQ(view.end, microseconds(300));
  EXPECT_EQ(view.compute_time, microseconds(200));
  EXPECT_EQ(view.bubble_time(), microseconds(100));
  EXPECT_EQ(view.spans.size(), 3u);
}

TEST(TimelineSvg, TypicalBlockIsTheMedianOfTheLastStep) {
  std::vector<TimelineSpan> spans;
  int64_t at = 0;
  const auto add = [&](int64_t step, int32_t layer, int64_t length) {
    TimelineSpan span = span_of(Lane::kCompute, "attention", at, at + length);
    span.step = step;
    span.layer = layer;
    at += length;
    spans.push_back(span);
  };
  add(0, 0, 50), add(0, 1, 51), add(0, 2, 52);
  add(1, 0, 900), add(1, 1, 300), add(1, 2, 10), add(1, 3, 200), add(1, -1, 5000);
  add(1, 4, 100);
  const auto block = longest_typical_block(spans);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->step, 1);
  EXPECT_EQ(block->layer, 3);
  spans.pop_back();  // four blocks: the shorter of the middle two
  EXPECT_EQ(longest_typical_block(spans)->layer, 3);
  EXPECT_FALSE(longest_typical_block({}).has_value());
  EXPECT_FALSE(longest_typical_block(std::vector{span_of(Lane::kKvIn, "load", 0, 1)}).has_value());
}

TEST(TimelineSvg, LanesOfTwoDevicesHaveARowEachAndRoomForTheirNames) {
  const TierId second{TierKind::compute, 1};
  const std::string svg = svg_of({span_of(Lane::kCompute, "gate", 0, 10),
                                  span_of(compute_lane(second), "expert", 10, 20),
                                  span_of(rows_lane(kComputeTier, second), "rows down", 5, 10),
                                  span_of(copy_lane(kHostTier, second), "load expert", 0, 10)});
  expect_well_formed(svg);
  for (const char* name :
       {">compute<", ">compute 1<", ">rows compute to compute 1<", ">to device 1<"}) {
    EXPECT_EQ(occurrences(svg, name), 1u) << name;
  }
}

TEST(TimelineSvg, ThePlanIsDrawnBelowOnTheSameScale) {
  std::vector<TimelineSpan> planned = {span_of(Lane::kCompute, "attention", 0, 2000),
                                       of_expert(span_of(Lane::kCompute, "expert", 2000, 6000), 5)};
  const std::vector<TimelineSpan> measured = small_block();
  std::ostringstream out;
  write_timeline_svg(
      out, {.spans = measured, .title = "both", .settings = "a model < 3 GiB", .planned = planned});
  const std::string svg = out.str();
  expect_well_formed(svg);
  for (const char* part :
       {">a model &lt; 3 GiB<", ">measured, step 0, layer 0: 12.000 ms",
        ">planned, step 0, layer 0: 6.000 ms", "The layer took 2.00 times as long as planned",
        "prefers-color-scheme:dark", "Computing waits 29 % of the time, mostly for disk read"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << svg;
  }
  // 12 ms on 1076 pixels: the planned expert takes a third, from a sixth on.
  EXPECT_NE(svg.find(R"(<rect x="279.33")"), std::string::npos) << svg;
  EXPECT_EQ(occurrences(svg, ">compute<"), 2u);
}

TEST(TimelineSvg, ConclusionsSayWhatBinds) {
  EXPECT_EQ(conclusion_of({}), "");
  const std::vector<TimelineSpan> hidden = {span_of(Lane::kCompute, "attention", 0, 2000)};
  EXPECT_EQ(conclusion_of(view_block(hidden, {})),
            "Transfers are hidden: computing hardly waits for them.");
  EXPECT_NE(
      conclusion_of(view_block(small_block(), {})).find("disk read: that lane binds this layer"),
      std::string::npos);
}

}  // namespace
}  // namespace klotski
