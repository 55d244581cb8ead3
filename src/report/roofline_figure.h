#pragma once

// The contents of a roofline plot in FLOPs a byte and FLOP/s: everything but pixels.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/roofline.h"
#include "report/log_scale.h"

namespace klotski {

struct MarkedOperation {
  std::string name;
  Operation operation;
};

// Two adjacent levels as in MoE-Lightning's figures 4 and 5.
struct RooflinePlot {
  std::string title;
  std::string upper_name;  // "memory", "GPU memory"
  std::string lower_name;  // "disk", "memory"
  LevelPair levels;
  std::vector<MarkedOperation> operations;
};

struct FigurePoint {
  double intensity = 0;
  double flops_per_second = 0;
};

struct RoofLine {
  std::string name;        // name with its rate
  std::string_view style;  // a class of the page
  bool flat = false;       // a compute roof; other roofs rise with intensity
  FigurePoint from;
  FigurePoint to;
};

// An operation is marked once for each way to run it that has a place on the axes.
struct OperationMarks {
  std::string name;
  std::optional<FigurePoint> fetched;   // computed above, its data coming over the link
  std::optional<FigurePoint> resident;  // computed above, its data there already
  std::optional<FigurePoint> below;     // computed where its data lies
  std::optional<FigurePoint> p2;        // where the link roof meets the height of `resident`
};

// A vertical line at a lower intensity.
struct TurningPoint {
  std::string label;
  double intensity = 0;
};

struct RooflineFigure {
  Decades intensity;
  Decades flops_per_second;
  std::vector<RoofLine> roofs;
  std::vector<TurningPoint> turning_points;  // by intensity
  std::vector<OperationMarks> operations;

  bool empty() const { return roofs.empty(); }
};

// Whether the planner's roofline can be asked about these levels, or about this operation. A figure
// of other levels has only the roofs that are known; other operations are left out.
bool can_be_asked(const LevelPair& levels);
bool can_be_asked(const Operation& operation);

RooflineFigure roofline_figure(const RooflinePlot& plot);

}  // namespace klotski
