#include "report/roofline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "report/label_room.h"
#include "report/markup.h"

namespace klotski {

namespace {

// All lengths are in pixels.
constexpr double kWidth = 1160;
constexpr double kLeft = 84;
constexpr double kRight = 24;
constexpr double kLegendTop = 14;
constexpr double kLegendRow = 20;
constexpr double kLabelRow = 16;  // height of a row of turning points' labels, above the plot
constexpr int kMostLabelRows = 6;
constexpr double kPlotHeight = 380;
constexpr double kAxisHeight = 48;
constexpr double kDot = 5;  // radius
constexpr double kSwatch = 22;

// Large rates are written in TFLOP/s.
constexpr int kGiga = 9, kTera = 12;

// The label of a turning point, to the left of the upper end of its line.
struct Flag {
  double text_right = 0;
  double right = 0;  // right end of the text and the line
  int row = 0;       // row, counted from the plot upwards
};

// A flag that reaches over a line to its left is higher than that line, so nothing is crossed. The
// points come by intensity.
std::vector<Flag> flags_of(const std::vector<TurningPoint>& points, const LogScale& x) {
  constexpr double kGap = 5;
  std::vector<Flag> flags;
  for (const TurningPoint& point : points) {
    const double at = x.at(point.intensity), width = text_width(point.label);
    Flag flag;
    flag.text_right = std::max(at - kGap, kLeft + width);
    flag.right = std::max(at, flag.text_right);
    for (const Flag& other : flags) {
      if (other.right + kGap > flag.text_right - width)
        flag.row = std::max(flag.row, other.row + 1);
    }
    flags.push_back(flag);
  }
  return flags;
}

int flag_rows(const std::vector<Flag>& flags) {
  int rows = 0;
  for (const Flag& flag : flags) rows = std::max(rows, flag.row + 1);
  return std::min(rows, kMostLabelRows);
}

class RooflineDrawing {
 public:
  RooflineDrawing(std::ostream& out, const RooflinePlot& plot)
      : figure_(roofline_figure(plot)),
        x_{figure_.intensity, kLeft, kWidth - kRight},
        flags_(flags_of(figure_.turning_points, x_)),
        top_(kLegendTop + kLegendRow * place_legend(nullptr) + kLabelRow * flag_rows(flags_) + 20),
        svg_(out, kWidth, figure_.empty() ? 60 : top_ + kPlotHeight + kAxisHeight, plot.title),
        y_{figure_.flops_per_second, top_ + kPlotHeight, top_},
        room_({kLeft, top_, kWidth - kLeft - kRight, kPlotHeight}) {}

  void write() {
    if (figure_.empty()) {
      svg_.text(20, 34, "no rate is known that could be drawn");
    } else {
      place_legend(&svg_);
      axes();
      for (const RoofLine& roof : figure_.roofs) {
        line(roof.from, roof.to, fmt::format("roof {}", roof.style), roof.name);
      }
      turning_points();
      operations();
    }
    svg_.close();
  }

 private:
  void line(const FigurePoint& from, const FigurePoint& to, std::string_view style,
            std::string_view tip = "") {
    svg_.line(x_.at(from.intensity), y_.at(from.flops_per_second), x_.at(to.intensity),
              y_.at(to.flops_per_second), style, tip);
  }

  // Draws the legend, or with nothing to draw on counts its rows.
  int place_legend(SvgWriter* svg) const {
    double left = kLeft;
    int row = 0;
    const auto entry = [&](std::string_view name, auto draw_swatch) {
      const double width = kSwatch + 24 + text_width(name);
      if (left > kLeft && left + width > kWidth - kRight) left = kLeft, ++row;
      const double middle = kLegendTop + kLegendRow * row + 6;
      if (svg) draw_swatch(left, middle);
      if (svg) svg->text(left + kSwatch + 6, middle + 4, name);
      left += width;
    };
    for (const RoofLine& roof : figure_.roofs) {
      entry(roof.name, [&](double x, double y) {
        const double rise = roof.flat ? 0 : 6;
        svg->line(x, y + rise, x + kSwatch, y - rise, fmt::format("roof {}", roof.style));
      });
    }
    const double middle = kSwatch / 2;
    const auto any = [&](std::optional<FigurePoint> OperationMarks::*mark) {
      return std::any_of(figure_.operations.begin(), figure_.operations.end(),
                         [&](const OperationMarks& one) { return (one.*mark).has_value(); });
    };
    if (any(&OperationMarks::fetched)) {
      entry("moved up and computed",
            [&](double x, double y) { svg->circle(x + middle, y, kDot, "dot"); });
    }
    if (any(&OperationMarks::resident)) {
      entry("computed above, already there",
            [&](double x, double y) { svg->circle(x + middle, y, kDot, "ring"); });
    }
    if (any(&OperationMarks::below)) {
      entry("computed below", [&](double x, double y) {
        svg->box({x + middle - kDot, y - kDot, 2 * kDot, 2 * kDot}, "ring");
      });
    }
    return row + 1;
  }

  void axes() {
    const double bottom = top_ + kPlotHeight;
    for (const int exponent : x_.ticks(12)) {
      const double at = x_.at(std::pow(10.0, exponent));
      svg_.line(at, top_, at, bottom, "grid");
      svg_.text(at, bottom + 18, decade_label(exponent), "middle");
    }
    const bool tera = y_.decades.high() > kTera;
    for (const int exponent : y_.ticks(12)) {
      const double at = y_.at(std::pow(10.0, exponent));
      svg_.line(kLeft, at, kWidth - kRight, at, "grid");
      svg_.text(kLeft - 8, at + 4, decade_label(exponent - (tera ? kTera : kGiga)), "end");
    }
    svg_.text(kLeft + (kWidth - kLeft - kRight) / 2, bottom + 40, "FLOP per byte", "middle soft");
    svg_.text(kLeft - 8, top_ - 12, tera ? "TFLOP/s" : "GFLOP/s", "end soft");
  }

  void turning_points() {
    for (size_t i = 0; i < flags_.size(); ++i) {
      const TurningPoint& turning = figure_.turning_points[i];
      const double at = x_.at(turning.intensity);
      double line_top = top_;
      if (flags_[i].row < kMostLabelRows) {
        const double baseline = top_ - 6 - kLabelRow * flags_[i].row;
        svg_.text(flags_[i].text_right, baseline, turning.label, "end");
        line_top = baseline - 9;
      }
      svg_.line(at, line_top, at, top_ + kPlotHeight, "turning", turning.label);
    }
  }

  void operations() {
    for (const OperationMarks& marks : figure_.operations) draw_marks(marks);
    for (const OperationMarks& marks : figure_.operations) label(marks);
  }

  void draw_marks(const OperationMarks& marks) {
    // The roof of the upper level by itself, up to the link roof: they meet at P2.
    if (marks.resident && marks.p2) line(*marks.resident, *marks.p2, "attains");
    if (marks.fetched && marks.below) line(*marks.below, *marks.fetched, "attains");
    const auto tip = [&](std::string_view how, const FigurePoint& at) {
      return fmt::format("{}, {}: {} FLOP a byte, {}", marks.name, how, short_number(at.intensity),
                         with_prefix(at.flops_per_second, "FLOP/s"));
    };
    const auto block = [&](const FigurePoint& at) {
      const double x = x_.at(at.intensity), y = y_.at(at.flops_per_second);
      room_.block({x - kDot - 1, y - kDot - 1, 2 * kDot + 2, 2 * kDot + 2});
      return std::array<double, 2>{x, y};
    };
    if (marks.resident) {
      const auto [x, y] = block(*marks.resident);
      svg_.circle(x, y, kDot, "ring", tip("computed above, already there", *marks.resident));
    }
    if (marks.below) {
      const auto [x, y] = block(*marks.below);
      svg_.box({x - kDot, y - kDot, 2 * kDot, 2 * kDot}, "ring",
               tip("computed below", *marks.below));
    }
    if (marks.fetched) {
      const auto [x, y] = block(*marks.fetched);
      svg_.circle(x, y, kDot, "dot", tip("moved up and computed", *marks.fetched));
    }
  }

  // Puts a label next to its dot, or as near as there is room; nowhere in a crowd, where the
  // pointer tells.
  void label(const OperationMarks& marks) {
    const std::optional<FigurePoint>& at = marks.fetched ? marks.fetched : marks.resident;
    if (!at) return;
    const double x = x_.at(at->intensity), y = y_.at(at->flops_per_second);
    const double width = text_width(marks.name);
    constexpr double kHeight = 15;
    for (const double shift : {19.0, -10.0, 34.0, -25.0, 49.0, -40.0}) {
      for (const bool to_the_right : {true, false}) {
        const double start = to_the_right ? x + kDot : x - kDot;
        const double baseline = y + shift;
        const double left = to_the_right ? start : start - width;
        if (!room_.take({left, baseline - kHeight + 3, width, kHeight})) continue;
        svg_.text(start, baseline, marks.name, to_the_right ? "mark-label" : "mark-label end");
        return;
      }
    }
  }

  RooflineFigure figure_;
  LogScale x_;
  std::vector<Flag> flags_;  // one a turning point
  double top_;               // top of the plot proper
  SvgWriter svg_;
  LogScale y_;
  LabelRoom room_;
};

}  // namespace

void write_roofline_svg(std::ostream& out, const RooflinePlot& plot) {
  RooflineDrawing(out, plot).write();
}

}  // namespace klotski
