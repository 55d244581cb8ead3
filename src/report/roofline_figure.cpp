#include "report/roofline_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "report/markup.h"

namespace klotski {

namespace {

constexpr int kFewestDecades = 3;
constexpr size_t kNameBytes = 28;  // bytes of a name in the drawing

bool zero_or_drawn(double value) { return value == 0 || can_be_drawn(value); }

std::optional<FigurePoint> point(double intensity, double flops_per_second) {
  if (!can_be_drawn(intensity) || !can_be_drawn(flops_per_second)) return std::nullopt;
  return FigurePoint{intensity, flops_per_second};
}

OperationMarks marks_of(const LevelPair& levels, const MarkedOperation& marked) {
  const Operation& operation = marked.operation;
  Operation resident = operation;
  resident.lower_bytes = 0;
  const double own = attainable_above(levels, resident).flops_per_second;
  OperationMarks marks;
  marks.name = one_line(marked.name, kNameBytes);
  marks.fetched =
      point(operation.lower_intensity(), attainable_above(levels, operation).flops_per_second);
  marks.resident = point(operation.upper_intensity(), own);
  marks.below =
      point(operation.lower_intensity(), attainable_below(levels, operation).flops_per_second);
  marks.p2 = point(second_turning_point(levels, operation), own);
  return marks;
}

// Operations with equal upper intensity share their P2. Where all do it needs no names.
std::vector<TurningPoint> second_turning_points(const std::vector<OperationMarks>& operations) {
  struct Shared {
    double intensity;
    std::string names;
  };
  std::vector<Shared> found;
  for (const OperationMarks& marks : operations) {
    if (!marks.p2) continue;
    const double intensity = marks.p2->intensity;
    const auto same = std::find_if(found.begin(), found.end(), [&](const Shared& other) {
      return std::abs(std::log10(intensity / other.intensity)) < 0.005;
    });
    if (same == found.end()) {
      found.push_back({intensity, marks.name});
    } else {
      same->names += ", " + marks.name;
    }
  }
  std::vector<TurningPoint> points;
  for (const Shared& shared : found) {
    std::string label = fmt::format("P2 = {}", short_number(shared.intensity));
    if (found.size() > 1) label += ": " + one_line(shared.names, kNameBytes);
    points.push_back({label, shared.intensity});
  }
  return points;
}

class RoofDrawer {
 public:
  explicit RoofDrawer(RooflineFigure& figure)
      : figure_(figure), x_{figure.intensity, 0, 0}, y_{figure.flops_per_second, 0, 0} {}

  // A compute roof, from the intensity at which its memory suffices to the right edge.
  void compute(const Level& level, std::string_view name, std::string_view style) {
    const double peak = level.peak_flops_per_second;
    if (!can_be_drawn(peak)) return;
    const double ridge = peak / level.memory_bytes_per_second;  // not finite without a memory
    const double left = std::max(x_.value_at_low(), can_be_drawn(ridge) ? ridge : 0);
    add({fmt::format("compute at {} {}", one_line(name, kNameBytes), with_prefix(peak, "FLOP/s")),
         style,
         true,
         {left, peak},
         {x_.value_at_high(), peak}});
  }

  // A memory or link roof, from the left or lower edge up to the peak of the processor it feeds.
  void sloping(double bytes_per_second, double peak, std::string_view name,
               std::string_view style) {
    if (!can_be_drawn(bytes_per_second)) return;
    const double top = can_be_drawn(peak) ? peak : y_.value_at_high();
    const double left = std::max(x_.value_at_low(), y_.value_at_low() / bytes_per_second);
    const double right = std::min(x_.value_at_high(), top / bytes_per_second);
    add({fmt::format("{} {}", one_line(name, 2 * kNameBytes), with_prefix(bytes_per_second, "B/s")),
         style,
         false,
         {left, left * bytes_per_second},
         {right, right * bytes_per_second}});
  }

 private:
  void add(RoofLine roof) {
    if (roof.from.intensity < roof.to.intensity) figure_.roofs.push_back(std::move(roof));
  }

  RooflineFigure& figure_;
  LogScale x_;
  LogScale y_;
};

// Makes both axes hold the operations, the turning points and the points where a processor's roofs
// meet.
void set_axes(RooflineFigure& figure, const LevelPair& levels) {
  const auto include = [&](const std::optional<FigurePoint>& at) {
    if (!at) return;
    figure.intensity.include(at->intensity);
    figure.flops_per_second.include(at->flops_per_second);
  };
  for (const OperationMarks& marks : figure.operations) {
    for (const auto& at : {marks.fetched, marks.resident, marks.below, marks.p2}) include(at);
  }
  for (const Level& level : {levels.upper, levels.lower}) {
    figure.flops_per_second.include(level.peak_flops_per_second);
    figure.intensity.include(level.peak_flops_per_second / level.memory_bytes_per_second);
  }
  figure.intensity.include(levels.upper.peak_flops_per_second / levels.link_bytes_per_second);
  for (const TurningPoint& turning : figure.turning_points) {
    figure.intensity.include(turning.intensity);
  }
  if (figure.intensity.empty()) figure.intensity.include(1);
  // A slope without a processor has only its own rate as height.
  if (figure.flops_per_second.empty()) {
    figure.flops_per_second.include(levels.upper.memory_bytes_per_second);
    figure.flops_per_second.include(levels.link_bytes_per_second);
  }
  figure.intensity.widen(kFewestDecades);
  figure.flops_per_second.widen(kFewestDecades);
}

}  // namespace

bool can_be_asked(const LevelPair& levels) {
  const Level& lower = levels.lower;
  return can_be_drawn(levels.upper.peak_flops_per_second) &&
         can_be_drawn(levels.upper.memory_bytes_per_second) &&
         can_be_drawn(levels.link_bytes_per_second) && zero_or_drawn(lower.peak_flops_per_second) &&
         zero_or_drawn(lower.memory_bytes_per_second) &&
         (lower.peak_flops_per_second == 0 || lower.memory_bytes_per_second > 0);
}

bool can_be_asked(const Operation& operation) {
  return can_be_drawn(operation.flops) && zero_or_drawn(operation.upper_bytes) &&
         zero_or_drawn(operation.lower_bytes);
}

RooflineFigure roofline_figure(const RooflinePlot& plot) {
  const LevelPair& levels = plot.levels;
  RooflineFigure figure;
  if (can_be_asked(levels)) {
    for (const MarkedOperation& marked : plot.operations) {
      if (can_be_asked(marked.operation)) figure.operations.push_back(marks_of(levels, marked));
    }
    const double p1 = first_turning_point(levels);
    if (can_be_drawn(p1)) {
      figure.turning_points.push_back({fmt::format("P1 = {}", short_number(p1)), p1});
    }
    for (TurningPoint& p2 : second_turning_points(figure.operations)) {
      figure.turning_points.push_back(std::move(p2));
    }
    std::stable_sort(
        figure.turning_points.begin(), figure.turning_points.end(),
        [](const TurningPoint& a, const TurningPoint& b) { return a.intensity < b.intensity; });
  }
  set_axes(figure, levels);
  if (figure.flops_per_second.empty()) return figure;
  RoofDrawer draw(figure);
  const double upper_peak = levels.upper.peak_flops_per_second;
  draw.compute(levels.upper, plot.upper_name, "upper");
  draw.sloping(levels.upper.memory_bytes_per_second, upper_peak, plot.upper_name, "upper");
  draw.sloping(levels.link_bytes_per_second, upper_peak, plot.lower_name + " to " + plot.upper_name,
               "link");
  if (levels.lower.peak_flops_per_second > 0) {
    draw.compute(levels.lower, plot.lower_name, "lower");
    draw.sloping(levels.lower.memory_bytes_per_second, levels.lower.peak_flops_per_second,
                 plot.lower_name, "lower");
  }
  return figure;
}

}  // namespace klotski
