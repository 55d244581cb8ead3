#pragma once

// A plan as one HTML page that needs nothing but itself: the decisions, the operations under the
// machine's roofs, one layer of a predicted pass, and the weights in memory.

#include <ostream>
#include <string>
#include <vector>

#include "report/placement_svg.h"
#include "report/roofline_figure.h"
#include "timeline/span.h"

namespace klotski {

struct PlanPage {
  std::string title;
  std::string facts;  // model, limits and settings in one line, below every picture's heading
  std::string text;   // the plan as printed
  std::vector<RooflinePlot> rooflines;
  std::vector<TimelineSpan> spans;  // spans of a predicted pass; a typical layer of it is drawn
  std::vector<PreviewedUnit> placement;
};

// A part with nothing to show is left out. The caller checks the stream.
void write_plan_page(std::ostream& out, const PlanPage& page);

}  // namespace klotski
