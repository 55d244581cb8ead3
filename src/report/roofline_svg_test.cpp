#include "report/roofline_svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "report/testing.h"

namespace klotski {
namespace {

using namespace testing_report;

// Two operations with the L4 of MoE-Lightning's figures.
RooflinePlot gpu_plot() {
  return {
      .title = "L4",
      .upper_name = "GPU memory",
      .lower_name = "memory",
      .levels = {.upper = {121e12, 300e9}, .lower = {1.6e12, 100e9}, .link_bytes_per_second = 16e9},
      .operations = {{"attention", {4e9, 1e9, 1e9}}, {"experts", {512e9, 4e9, 1e9}}}};
}

RooflinePlot disk_plot() {
  return {.title = "disk",
          .upper_name = "memory",
          .lower_name = "disk",
          .levels = {.upper = {1e12, 50e9}, .lower = {}, .link_bytes_per_second = 2e9},
          .operations = {{"experts", {64e9, 1e9, 1e9}}}};
}

struct Drawn {
  std::string svg;
  std::vector<std::string> tags;
};

Drawn draw(const RooflinePlot& plot) {
  std::ostringstream out;
  write_roofline_svg(out, plot);
  Drawn drawn{out.str(), {}};
  drawn.tags = expect_well_formed(drawn.svg);
  expect_plain_numbers(drawn.tags);
  return drawn;
}

// The scale of the x axis, taken from the drawing's width.
LogScale x_axis(const RooflinePlot& plot) { return {roofline_figure(plot).intensity, 84, 1136}; }

TEST(RooflineFigure, RoofsMeetWhereTheRatesSay) {
  const RooflineFigure figure = roofline_figure(gpu_plot());
  ASSERT_EQ(figure.roofs.size(), 5u);
  const RoofLine &compute = figure.roofs[0], &memory = figure.roofs[1], &link = figure.roofs[2];
  EXPECT_TRUE(compute.flat);
  EXPECT_FALSE(memory.flat);
  EXPECT_DOUBLE_EQ(compute.from.intensity, 121e12 / 300e9);
  EXPECT_DOUBLE_EQ(memory.to.intensity, compute.from.intensity);
  EXPECT_DOUBLE_EQ(memory.to.flops_per_second, 121e12);
  EXPECT_DOUBLE_EQ(link.to.intensity, 121e12 / 16e9);
  EXPECT_DOUBLE_EQ(figure.roofs[4].to.intensity, 16);  // where the lower level's roofs meet
  for (const RoofLine& roof : figure.roofs) {
    if (roof.flat) continue;
    EXPECT_NEAR(roof.from.flops_per_second / roof.from.intensity,
                roof.to.flops_per_second / roof.to.intensity, 1e3);
  }
}

TEST(RooflineFigure, OperationsLieOnTheirRoofs) {
  const RooflinePlot plot = gpu_plot();
  const RooflineFigure figure = roofline_figure(plot);
  ASSERT_EQ(figure.operations.size(), 2u);
  const OperationMarks &attention = figure.operations[0], &experts = figure.operations[1];
  EXPECT_DOUBLE_EQ(attention.fetched->intensity, 4);
  EXPECT_DOUBLE_EQ(attention.fetched->flops_per_second, 64e9);
  EXPECT_DOUBLE_EQ(attention.below->flops_per_second, 400e9);
  EXPECT_DOUBLE_EQ(experts.resident->intensity, 128);
  EXPECT_DOUBLE_EQ(experts.resident->flops_per_second, 38.4e12);
  EXPECT_DOUBLE_EQ(experts.p2->intensity,
                   second_turning_point(plot.levels, plot.operations[1].operation));
}

TEST(RooflineFigure, ADiskHasNoRoofsOfItsOwnAndNoP1) {
  const RooflineFigure figure = roofline_figure(disk_plot());
  EXPECT_EQ(figure.roofs.size(), 3u);
  ASSERT_EQ(figure.turning_points.size(), 1u);
  EXPECT_EQ(figure.turning_points[0].label, "P2 = 500");
  EXPECT_FALSE(figure.operations[0].below.has_value());
}

TEST(RooflineFigure, EqualSecondTurningPointsAreOneLine) {
  RooflinePlot plot = disk_plot();
  plot.operations.push_back({"more experts", {128e9, 2e9, 1e9}});
  EXPECT_EQ(roofline_figure(plot).turning_points.size(), 1u);
  plot.operations.push_back({"attention", {1e9, 1e9, 1e9}});
  const RooflineFigure figure = roofline_figure(plot);
  ASSERT_EQ(figure.turning_points.size(), 2u);
  EXPECT_EQ(figure.turning_points[0].label, "P2 = 25: attention");
  EXPECT_EQ(figure.turning_points[1].label, "P2 = 500: experts, more experts");
}

TEST(RooflineSvg, TurningPointsLieWhereThePlannerSays) {
  const RooflinePlot plot = gpu_plot();
  const Drawn drawn = draw(plot);
  const std::vector<std::string> lines = with_class(drawn.tags, "line", "turning");
  ASSERT_EQ(lines.size(), 3u);
  const LogScale x = x_axis(plot);
  // Turning points in the order of intensity: 75, 100 and 2400.
  const double expected[] = {second_turning_point(plot.levels, plot.operations[0].operation),
                             first_turning_point(plot.levels),
                             second_turning_point(plot.levels, plot.operations[1].operation)};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(attribute_of(lines[i], "x1"), x.at(expected[i]), 0.01);
    EXPECT_EQ(attribute_of(lines[i], "x1"), attribute_of(lines[i], "x2"));
  }
}

TEST(RooflineSvg, SaysWhatItShows) {
  const std::string svg = draw(gpu_plot()).svg;
  for (const char* part : {"compute at GPU memory 121 TFLOP/s", "GPU memory 300 GB/s",
                           "memory to GPU memory 16.0 GB/s", "compute at memory 1.60 TFLOP/s",
                           "memory 100 GB/s", ">FLOP per byte<", ">TFLOP/s<", ">P1 = 100<",
                           ">P2 = 2400: experts<", ">attention<", ">experts<", ">0.1<", ">1000<"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  const std::string disk = draw(disk_plot()).svg;
  EXPECT_NE(disk.find(">GFLOP/s<"), std::string::npos);
  EXPECT_EQ(disk.find("P1"), std::string::npos);
  EXPECT_EQ(disk.find("computed below"), std::string::npos);
}

TEST(RooflineSvg, HigherIntensityLiesFurtherRightAndNoLower) {
  RooflinePlot plot = gpu_plot();
  plot.operations.clear();
  for (int i = 0; i < 12; ++i) {
    plot.operations.push_back({"op", {std::ldexp(1e9, i), 1e6, 1e9}});
  }
  const std::vector<std::string> dots = with_class(draw(plot).tags, "circle", "dot");
  ASSERT_EQ(dots.size(), 13u);  // the first is the legend's
  for (size_t i = 2; i < dots.size(); ++i) {
    EXPECT_GT(attribute_of(dots[i], "cx"), attribute_of(dots[i - 1], "cx"));
    EXPECT_LE(attribute_of(dots[i], "cy"), attribute_of(dots[i - 1], "cy"));
  }
}

TEST(RooflineSvg, LabelsDoNotOverlap) {
  RooflinePlot plot = disk_plot();
  plot.operations.clear();
  for (int i = 0; i < 8; ++i) {
    plot.operations.push_back({"operation", {(64 + i) * 1e9, (1 + i) * 1e9, 1e9}});
  }
  struct Label {
    double left, baseline;
  };
  constexpr double kTextWidth = 50;  // pixels at least
  const Drawn drawn = draw(plot);
  std::vector<Label> labels;
  for (const std::string& tag : with_class(drawn.tags, "text", "mark-label")) {
    labels.push_back({attribute_of(tag, "x"), attribute_of(tag, "y")});
  }
  for (const std::string& tag : with_class(drawn.tags, "text", "mark-label end")) {
    labels.push_back({attribute_of(tag, "x") - kTextWidth, attribute_of(tag, "y")});
  }
  EXPECT_GE(labels.size(), 4u);
  for (size_t a = 0; a < labels.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const double across = std::abs(labels[a].left - labels[b].left);
      const double down = std::abs(labels[a].baseline - labels[b].baseline);
      EXPECT_TRUE(across > kTextWidth || down > 12) << a << " and " << b;
    }
  }
}

TEST(RooflineSvg, NoLineCrossesTheLabelOfATurningPoint) {
  RooflinePlot plot = disk_plot();
  plot.operations.clear();
  for (int i = 0; i < 5; ++i) {
    plot.operations.push_back({"experts of a group", {64e9, std::pow(1.3, i) * 4e9, 1e9}});
  }
  const Drawn drawn = draw(plot);
  const std::vector<std::string> lines = with_class(drawn.tags, "line", "turning");
  ASSERT_EQ(lines.size(), 5u);
  size_t labels = 0;
  for (size_t at = 0; (at = drawn.svg.find("<text", at)) != std::string::npos; ++at) {
    const std::string text = drawn.svg.substr(at, drawn.svg.find("</text>", at) - at);
    if (text.find(">P2") == std::string::npos) continue;
    ++labels;
    const double right = attribute_of(text, "x"), baseline = attribute_of(text, "y");
    for (const std::string& line : lines) {
      const double x = attribute_of(line, "x1");
      const bool across = x < right && x > right - 150;  // less than the text takes
      EXPECT_FALSE(across && attribute_of(line, "y1") < baseline - 3) << text;
    }
  }
  EXPECT_EQ(labels, 5u);
}

TEST(RooflineSvg, WhatIsNotKnownIsLeftOut) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, kInfinite, std::nan(""), 1e-320, 1e308}) {
    RooflinePlot unlinked = gpu_plot();
    unlinked.levels.link_bytes_per_second = bad;
    EXPECT_EQ(with_class(draw(unlinked).tags, "line", "turning").size(), 0u);
    for (Level LevelPair::*level : {&LevelPair::upper, &LevelPair::lower}) {
      for (double Level::*rate : {&Level::peak_flops_per_second, &Level::memory_bytes_per_second}) {
        RooflinePlot plot = gpu_plot();
        plot.levels.*level.*rate = bad;
        draw(plot);
      }
    }
    for (double Operation::*field :
         {&Operation::flops, &Operation::upper_bytes, &Operation::lower_bytes}) {
      RooflinePlot plot = gpu_plot();
      plot.operations[0].operation.*field = bad;
      draw(plot);
    }
  }
  const Drawn nothing = draw({});
  EXPECT_NE(nothing.svg.find("no rate is known"), std::string::npos);
}

TEST(RooflineSvg, RandomPlotsStayInsideTheDrawing) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> exponent(-32, 32);
  const auto any = [&] { return random() % 8 == 0 ? 0.0 : std::pow(10.0, exponent(random)); };
  for (int i = 0; i < 300; ++i) {
    RooflinePlot plot{.title = "random",
                      .upper_name = "up",
                      .lower_name = "down",
                      .levels = {{any(), any()}, {any(), any()}, any()},
                      .operations = {}};
    for (int k = 0; k < 3; ++k) plot.operations.push_back({"op", {any(), any(), any()}});
    const Drawn drawn = draw(plot);
    const double height = attribute_of(drawn.tags.front(), "height");
    for (const std::string& tag : drawn.tags) {
      for (const char* name : {"x1", "x2", "cx"}) EXPECT_LE(attribute_of(tag, name), 1160) << tag;
      for (const char* name : {"y1", "y2", "cy"}) EXPECT_LE(attribute_of(tag, name), height) << tag;
    }
  }
}

}  // namespace
}  // namespace klotski
