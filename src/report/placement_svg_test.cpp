#include "report/placement_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "report/testing.h"

namespace klotski {
namespace {

using namespace testing_report;

WeightUnit expert(int64_t layer, int64_t number) {
  return {UnitKind::expert, LayerId(layer), ExpertId(number)};
}

struct Drawn {
  std::string svg;
  std::vector<std::string> tags;

  // Boxes of the grid, without the legend's above it.
  std::vector<std::string> boxes() const {
    std::vector<std::string> found;
    for (const std::string& tag : tags) {
      if (tag.rfind("rect ", 0) == 0 && attribute_of(tag, "y") > 50) found.push_back(tag);
    }
    return found;
  }
};

Drawn draw(const std::vector<PreviewedUnit>& placement) {
  std::ostringstream out;
  write_placement_svg(out, placement);
  Drawn drawn{out.str(), {}};
  drawn.tags = expect_well_formed(drawn.svg);
  expect_plain_numbers(drawn.tags);
  return drawn;
}

TEST(PlacementSvg, NeighboursAlikeAreOneBox) {
  std::vector<PreviewedUnit> placement;
  for (int64_t i = 0; i < 8; ++i) placement.push_back({expert(0, i), i < 5 ? 1.0 : 0.0});
  const Drawn drawn = draw(placement);
  const std::vector<std::string> boxes = drawn.boxes();
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_NEAR(attribute_of(boxes[0], "width") / attribute_of(boxes[1], "width"), 5.0 / 3, 1e-4);
  EXPECT_NEAR(attribute_of(boxes[0], "x") + attribute_of(boxes[0], "width"),
              attribute_of(boxes[1], "x"), 1e-3);
  EXPECT_NE(boxes[0].find("share s10"), std::string::npos);
  EXPECT_NE(boxes[1].find("share s0"), std::string::npos);
  EXPECT_NE(drawn.svg.find("layer 0 experts 0 to 4: always in memory"), std::string::npos);
}

TEST(PlacementSvg, TheOrderGivenDoesNotMatter) {
  std::vector<PreviewedUnit> placement;
  for (int64_t layer = 0; layer < 4; ++layer) {
    placement.push_back({attention_unit(LayerId(layer)), 1});
    for (int64_t i = 0; i < 16; ++i) {
      placement.push_back({expert(layer, i), static_cast<double>(i % 3) / 2});
    }
  }
  const std::string ordered = draw(placement).svg;
  std::shuffle(placement.begin(), placement.end(), std::mt19937(3));
  EXPECT_EQ(draw(placement).svg, ordered);
}

TEST(PlacementSvg, NearlyIsNotAlwaysOrNever) {
  const std::vector<std::string> boxes = draw({{expert(0, 0), 0.999},
                                               {expert(0, 2), 0.001},
                                               {expert(0, 4), 0.52},
                                               {expert(0, 6), 1.0},
                                               {expert(0, 8), 7.0},
                                               {expert(0, 10), -1.0}})
                                             .boxes();
  ASSERT_EQ(boxes.size(), 6u);
  const char* expected[] = {"s9\"", "s1\"", "s5\"", "s10\"", "s10\"", "s0\""};
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NE(boxes[i].find(expected[i]), std::string::npos) << boxes[i];
}

TEST(PlacementSvg, OnlyColumnsThatOccur) {
  const Drawn dense = draw({{model_unit(), 1},
                            {attention_unit(LayerId(0)), 1},
                            {gate_unit(LayerId(0)), 0.5},
                            {{UnitKind::dense, LayerId(0), ExpertId(0)}, 0}});
  EXPECT_EQ(dense.boxes().size(), 3u);
  EXPECT_NE(dense.svg.find(">dense<"), std::string::npos);
  EXPECT_NE(dense.svg.find("embedding and output"), std::string::npos);
  EXPECT_EQ(dense.svg.find(">experts<"), std::string::npos);
  const Drawn routed = draw({{expert(5, 0), 0.5}});
  EXPECT_EQ(routed.svg.find(">dense<"), std::string::npos);
  EXPECT_EQ(routed.svg.find("embedding"), std::string::npos);
  EXPECT_NE(routed.svg.find(">5<"), std::string::npos);  // the layer's own number
}

TEST(PlacementSvg, SharesThatAreNoNumberAreLeftOut) {
  const Drawn drawn = draw({{expert(0, 0), std::nan("")},
                            {expert(0, 1), std::numeric_limits<double>::infinity()},
                            {expert(0, 2147483647), 0.5},
                            {expert(-3, 2), 0.5},
                            {expert(0, 3), 0.5}});
  EXPECT_EQ(drawn.boxes().size(), 1u);
  EXPECT_EQ(draw({}).boxes().size(), 0u);
}

TEST(PlacementSvg, ThousandsOfCellsStaySmall) {
  std::vector<PreviewedUnit> worst, likely;
  std::mt19937 random(5);
  for (int64_t layer = 0; layer < 94; ++layer) {
    for (std::vector<PreviewedUnit>* one : {&worst, &likely}) {
      one->push_back({attention_unit(LayerId(layer)), 1});
      one->push_back({gate_unit(LayerId(layer)), 1});
    }
    for (int64_t i = 0; i < 512; ++i) {
      worst.push_back({expert(layer, i), static_cast<double>(random() % 1000) / 1000});
      likely.push_back({expert(layer, i), i < 40 ? 1.0 : 0.0});
    }
  }
  const Drawn large = draw(worst);
  EXPECT_LT(large.svg.size(), 4u << 20);
  EXPECT_LT(attribute_of(large.tags.front(), "height"), 1000);
  for (const std::string& box : large.boxes()) {
    EXPECT_LE(attribute_of(box, "x") + attribute_of(box, "width"), 1160);
  }
  const Drawn small = draw(likely);
  EXPECT_LT(small.svg.size(), 100u << 10);
  EXPECT_EQ(small.boxes().size(), 94u * 4);
}

}  // namespace
}  // namespace klotski
