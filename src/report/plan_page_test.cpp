#include "report/plan_page.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "report/testing.h"

namespace klotski {
namespace {

using namespace testing_report;

constexpr const char* kHostile = "</pre></svg><script>alert(\"1\")</script>&amp;'\n\x01\xff";

TimelineSpan span_of(Lane lane, std::string_view work, int64_t start_us, int64_t end_us) {
  TimelineSpan span;
  span.lane = lane;
  span.work = work;
  span.layer = 0;
  span.start = std::chrono::microseconds(start_us);
  span.end = std::chrono::microseconds(end_us);
  return span;
}

PlanPage full_page(const std::string& name) {
  PlanPage page;
  page.title = name;
  page.facts = "facts: " + name;
  page.text = "memory  8 GiB\n  " + name + "\n";
  page.rooflines = {{.title = name,
                     .upper_name = name,
                     .lower_name = name,
                     .levels = {{1e13, 3e11}, {1e12, 1e11}, 1.6e10},
                     .operations = {{name, {1e9, 1e8, 1e8}}, {"nothing", {}}}}};
  page.spans = {span_of(Lane::kCompute, "attention", 0, 100),
                span_of(Lane::kDiskRead, "load expert", 0, 300),
                span_of(Lane::kCompute, "expert", 300, 400)};
  page.spans.back().waited_for = Lane::kDiskRead;
  page.placement = {{attention_unit(LayerId(0)), 1}, {gate_unit(LayerId(0)), 0.25}};
  return page;
}

struct Written {
  std::string html;
  std::vector<std::string> tags;
};

Written write(const PlanPage& page) {
  std::ostringstream out;
  write_plan_page(out, page);
  Written written{out.str(), {}};
  written.tags = expect_well_formed(written.html);
  expect_plain_numbers(written.tags);
  return written;
}

TEST(PlanPage, ShowsEveryPart) {
  const std::string html = write(full_page("a plan")).html;
  EXPECT_EQ(html.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_EQ(occurrences(html, "<svg "), 3u);
  EXPECT_EQ(occurrences(html, "<section>"), 4u);
  for (const char* part :
       {"<title>a plan</title>", "memory  8 GiB\n  a plan\n</pre>", "prefers-color-scheme: dark",
        "<td>160 GFLOP/s, link binds</td>", "<td>1.00 TFLOP/s, compute binds</td><td>below</td>",
        "layer 0 gate: in memory in about 30 % of the passes"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(PlanPage, EveryPictureNamesItsFactsAndEndsWithAConclusion) {
  const std::string html = write(full_page("a plan")).html;
  EXPECT_EQ(occurrences(html, "facts: a plan"), 3u);
  for (const char* conclusion :
       {"Computing waits 50 % of the time, mostly for disk read: that lane binds this layer.",
        "0 of 0 experts and 1 of 2 other parts are found in memory by every pass"}) {
    EXPECT_EQ(occurrences(html, conclusion), 1u) << conclusion;
  }
  PlanPage own = full_page("a plan");
  own.rooflines[0].operations.pop_back();
  EXPECT_NE(write(own).html.find("a plan: at most 160 GFLOP/s for one expert by itself"),
            std::string::npos);
  own.placement.pop_back();
  EXPECT_NE(write(own).html.find("All weights stay in memory"), std::string::npos);
}

TEST(PlanPage, DrawingsAreReadableOnAPhone) {
  const std::string html = write(full_page("a plan")).html;
  EXPECT_NE(html.find("width=device-width"), std::string::npos);
  EXPECT_NE(html.find("@media (max-width: 700px)"), std::string::npos);
  EXPECT_EQ(occurrences(html, "prefers-color-scheme"), 2u);  // the page's and the timeline's
}

TEST(PlanPage, PartsWithNothingToShowAreLeftOut) {
  const std::string html =
      write(
          {.title = "bare", .facts = "", .text = "", .rooflines = {}, .spans = {}, .placement = {}})
          .html;
  EXPECT_EQ(html.find("<section>"), std::string::npos);
  EXPECT_EQ(html.find("<svg"), std::string::npos);
  PlanPage no_computing = full_page("x");
  no_computing.spans = {span_of(Lane::kDiskRead, "load expert", 0, 300)};
  EXPECT_EQ(occurrences(write(no_computing).html, "<section>"), 3u);
}

TEST(PlanPage, HostileNamesStayText) {
  const Written written = write(full_page(kHostile));
  EXPECT_EQ(written.html.find("<script"), std::string::npos);
  EXPECT_NE(written.html.find("&lt;script&gt;"), std::string::npos);
  EXPECT_EQ(written.html.find('\x01'), std::string::npos);
  EXPECT_EQ(written.html.find('\xff'), std::string::npos);
  EXPECT_EQ(occurrences(written.html, "</pre>"), 1u);
  EXPECT_EQ(occurrences(written.html, "</svg>"), 3u);
}

TEST(PlanPage, NeedsNothingFromElsewhere) {
  const Written written = write(full_page("a plan"));
  for (const std::string& tag : written.tags) {
    for (const char* part : {"script", "src=", "href", "link ", "img", "iframe", "@import"}) {
      EXPECT_EQ(tag.rfind(part, 0), std::string::npos) << tag;
    }
  }
  EXPECT_EQ(occurrences(written.html, "://"),
            occurrences(written.html, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(written.html.find("default-src 'none'"), std::string::npos);
}

TEST(PlanPage, LevelsThatCannotBeAskedHaveNoTable) {
  PlanPage page = full_page("a plan");
  page.rooflines[0].levels.link_bytes_per_second = 0;
  EXPECT_EQ(write(page).html.find("<table>"), std::string::npos);
}

}  // namespace
}  // namespace klotski
