#include "timeline/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "timeline/escaped.h"
#include "timeline/lane_map.h"
#include "timeline/svg_block.h"
#include "timeline/svg_colours.h"

namespace klotski {

namespace {

// All lengths are in pixels.
constexpr double kWidth = 1200;
constexpr double kLeastLeft = 100;
constexpr double kRight = 24;
constexpr double kLegendTop = 66;
constexpr double kLegendRow = 22;
constexpr double kRowHeight = 34;
constexpr double kRowPitch = 46;
constexpr double kAxisHeight = 46;
constexpr double kCharacter = 7;  // about the width of one at the size used for labels

constexpr std::string_view kBubbleFill = "url(#bubble)";

double milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e6;
}

class Drawing {
 public:
  Drawing(std::ostream& out, const BlockView& view, TimelineBlock block)
      : out_(out), view_(view), block_(block), colours_(view.spans) {
    for (const TimelineSpan& span : view.spans) rows_.at(span.lane).push_back(&span);
    for (const auto& [lane, spans] : rows_) {
      const auto characters = static_cast<double>(lane_name(lane).size());
      left_ = std::max(left_, 10 + kCharacter * characters);
    }
  }

  void write(std::string_view title) {
    const double rows_top = kLegendTop + kLegendRow * place_legend(false) + 12;
    const auto lanes = static_cast<double>(rows_.size());
    const double rows_bottom = rows_top + kRowPitch * lanes;
    open(rows_bottom + kAxisHeight);
    text(left_, 26, title, R"(font-size="16" font-weight="bold")");
    text(left_, 48, summary(), "");
    place_legend(true);
    if (!view_.spans.empty()) {
      axis(rows_top - 4, rows_bottom);
      rows(rows_top);
    }
    out_ << "</svg>\n";
  }

 private:
  double x(std::chrono::nanoseconds time) const {
    const double window = std::max(milliseconds(view_.end - view_.start), 1e-6);
    const double place = milliseconds(time - view_.start) / window;
    return left_ + std::clamp(place, 0.0, 1.0) * (kWidth - left_ - kRight);
  }

  void open(double height) {
    out_ << fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
        R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)"
        "\n"
        R"(<defs><pattern id="bubble" width="6" height="6" patternUnits="userSpaceOnUse" )"
        R"svg(patternTransform="rotate(45)"><rect width="6" height="6" fill="#fbe3e0"/>)svg"
        R"(<line x1="0" y1="0" x2="0" y2="6" stroke="#c0392b" stroke-width="2"/></pattern></defs>)"
        "\n"
        R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
        "\n",
        kWidth, height);
  }

  void text(double left, double baseline, std::string_view content, std::string_view attributes) {
    out_ << fmt::format(R"(<text x="{:.2f}" y="{:.2f}" fill="#1c2226" {}>{}</text>)"
                        "\n",
                        left, baseline, attributes, escaped(content));
  }

  void box(double left, double top, double width, double height, std::string_view fill,
           std::string_view attributes = "", std::string_view tip = "") {
    out_ << fmt::format(
        R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}" {}>)", left, top,
        width, height, fill, attributes);
    if (!tip.empty()) out_ << "<title>" << escaped(tip) << "</title>";
    out_ << "</rect>\n";
  }

  std::string summary() const {
    if (view_.spans.empty()) {
      return fmt::format("step {}, layer {}: nothing was recorded", block_.step, block_.layer);
    }
    const double bubbles = milliseconds(view_.bubble_time());
    const double total = milliseconds(view_.compute_time);
    return fmt::format("step {}, layer {}: {:.3f} ms; bubbles {:.3f} ms ({:.1f}%)", block_.step,
                       block_.layer, total, bubbles, total > 0 ? 100 * bubbles / total : 0.0);
  }

  // Returns the number of rows the legend takes.
  int place_legend(bool draw) {
    double left = left_;
    int row = 0;
    const auto entry = [&](std::string_view name, std::string_view fill) {
      const double width = 30 + kCharacter * static_cast<double>(name.size());
      if (left + width > kWidth - kRight) left = left_, ++row;
      if (draw) {
        const double top = kLegendTop + kLegendRow * row;
        box(left, top, 14, 14, fill);
        text(left + 19, top + 11, name, "");
      }
      left += width;
    };
    for (const std::string_view work : colours_.works()) entry(work, colours_.of(work));
    if (!view_.bubbles.empty()) entry("bubble", kBubbleFill);
    return row + 1;
  }

  // Ticks 1, 2 or 5 times a power of ten apart, about ten of them.
  void axis(double top, double bottom) {
    const double window = std::max(milliseconds(view_.end - view_.start), 1e-6);
    const double power = std::pow(10.0, std::floor(std::log10(window / 10)));
    const double ratio = window / 10 / power;
    const double tick = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(tick) + 1e-9)));
    for (int i = 0; i * tick <= window * (1 + 1e-9); ++i) {
      const double at = left_ + i * tick / window * (kWidth - left_ - kRight);
      out_ << fmt::format(
          R"(<line x1="{0:.2f}" y1="{1:.2f}" x2="{0:.2f}" y2="{2:.2f}" stroke="#d5dade"/>)"
          "\n",
          at, top, bottom + 4);
      text(at, bottom + 18, fmt::format("{:.{}f}", i * tick, decimals), R"(text-anchor="middle")");
    }
    text(left_ - 10, bottom + 18, "ms", R"(text-anchor="end")");
  }

  void rows(double top) {
    for (const auto& [lane, spans] : rows_) {
      text(left_ - 10, top + kRowHeight / 2 + 4, lane_name(lane), R"(text-anchor="end")");
      if (lane == Lane::kCompute) draw_bubbles(top);
      for (const TimelineSpan* span : spans) draw_span(*span, top);
      top += kRowPitch;
    }
  }

  void draw_bubbles(double top) {
    for (const Bubble& bubble : view_.bubbles) {
      const bool intra = bubble.kind == BubbleKind::intra_layer;
      box(x(bubble.start), top, x(bubble.end) - x(bubble.start), kRowHeight, kBubbleFill,
          R"(class="bubble")",
          fmt::format("{}-layer bubble, {:.3f} ms", intra ? "intra" : "inter",
                      milliseconds(bubble.end - bubble.start)));
    }
  }

  void draw_span(const TimelineSpan& span, double top) {
    const double left = x(span.start);
    const double width = std::max(x(span.end) - left, 0.5);  // a short span stays visible
    const bool own = is_of(span, block_);
    box(left, top, width, kRowHeight, colours_.of(span.work),
        own ? R"(stroke="#ffffff" stroke-width="0.5")"
            : R"(stroke="#ffffff" stroke-width="0.5" opacity="0.35")",
        tip(span));
    const std::string number = span.expert < 0 ? "" : std::to_string(span.expert);
    if (own && !number.empty() && width > kCharacter * static_cast<double>(number.size()) + 4) {
      text(left + width / 2, top + kRowHeight / 2 + 4, number, R"(text-anchor="middle")");
    }
  }

  static std::string tip(const TimelineSpan& span) {
    std::string tip(span.work);
    if (span.expert >= 0) tip += fmt::format(" {}", span.expert);
    tip += fmt::format(", step {}, layer {}", span.step, span.layer);
    if (span.micro_batch >= 0) tip += fmt::format(", micro-batch {}", span.micro_batch);
    return tip + fmt::format(", {:.3f} ms", milliseconds(span.duration()));
  }

  std::ostream& out_;
  const BlockView& view_;
  TimelineBlock block_;
  WorkColours colours_;
  double left_ = kLeastLeft;                          // x of time 0; lane names lie before it
  LaneMap<std::vector<const TimelineSpan*>> rows_{};  // spans by lane
};

}  // namespace

void write_timeline_svg(std::ostream& out, std::span<const TimelineSpan> spans, TimelineBlock block,
                        std::string_view title) {
  const BlockView view = view_block(spans, block);
  Drawing(out, view, block).write(title);
}

}  // namespace klotski
