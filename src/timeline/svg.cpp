#include "timeline/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "base/error.h"
#include "timeline/escaped.h"
#include "timeline/svg_colours.h"
#include "timeline/svg_panel.h"

namespace klotski {

namespace {

// All lengths are in pixels.
constexpr double kWidth = 1200;
constexpr double kLeastLeft = 100;
constexpr double kRight = 24;
constexpr double kLegendTop = 66;
constexpr double kLegendRow = 22;
constexpr double kRowHeight = 34;
constexpr double kCharacter = 7;  // about the width of one at the size used for labels

constexpr std::string_view kBubbleFill = "url(#bubble)";
// Colours of all but the boxes. A page that holds the drawing shares its classes, hence the names.
constexpr std::string_view kTimelineStyle =
    "<style>.tl-ink{fill:#1c2226}.tl-ground{fill:#ffffff}.tl-line{stroke:#d5dade}"
    "@media (prefers-color-scheme:dark){.tl-ink{fill:#e4e8ea}.tl-ground{fill:#1d2327}"
    ".tl-line{stroke:#3f484f}}</style>\n";

class Drawing {
 public:
  Drawing(std::ostream& out, const std::deque<Panel>& panels)
      : out_(out), panels_(panels), spans_(spans_of(panels)), colours_(spans_) {
    for (const Panel& panel : panels) {
      window_ = std::max(window_, panel.window());
      for (const auto& [lane, spans] : panel.rows) {
        const auto characters = static_cast<double>(lane_name(lane).size());
        left_ = std::max(left_, 10 + kCharacter * characters);
      }
    }
  }

  void write(std::string_view title, std::string_view settings) {
    if (!settings.empty()) legend_top_ += kTextRow;
    double top = legend_top_ + kLegendRow * place_legend(false) + 12;
    double height = top;
    for (const Panel& panel : panels_) height += panel.height();
    const std::string conclusion =
        conclusion_of(panels_.front().view, panels_.size() > 1 ? &panels_.back().view : nullptr);
    open(height + (conclusion.empty() ? 0 : kTextRow));
    text(left_, 26, title, R"(font-size="16" font-weight="bold")");
    text(left_, 48, summary(panels_.front()), "");
    if (!settings.empty()) text(left_, 48 + kTextRow, settings, "");
    place_legend(true);
    for (const Panel& panel : panels_) {
      draw(panel, top);
      top += panel.height();
    }
    if (!conclusion.empty()) text(left_, height + 8, conclusion, R"(font-weight="bold")");
    out_ << "</svg>\n";
  }

 private:
  double x(const Panel& panel, std::chrono::nanoseconds time) const {
    const double place = milliseconds(time - panel.view.start) / window_;
    return left_ + std::clamp(place, 0.0, 1.0) * (kWidth - left_ - kRight);
  }

  void open(double height) {
    out_ << fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
                        R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)"
                        "\n",
                        kWidth, height)
         << kTimelineStyle
         << fmt::format(
                R"(<defs><pattern id="bubble" width="6" height="6" patternUnits="userSpaceOnUse" )"
                R"svg(patternTransform="rotate(45)"><rect width="6" height="6" fill="#fbe3e0"/>)svg"
                R"(<line x1="0" y1="0" x2="0" y2="6" stroke="#c0392b" stroke-width="2"/>)"
                R"(</pattern></defs>)"
                "\n"
                R"(<rect width="{0}" height="{1}" class="tl-ground"/>)"
                "\n",
                kWidth, height);
  }

  void text(double left, double baseline, std::string_view content, std::string_view attributes,
            std::string_view colour = R"(class="tl-ink")") {
    out_ << fmt::format(R"(<text x="{:.2f}" y="{:.2f}" {} {}>{}</text>)"
                        "\n",
                        left, baseline, colour, attributes, escaped(content));
  }

  void box(double left, double top, double width, double height, std::string_view fill,
           std::string_view attributes = "", std::string_view tip = "") {
    out_ << fmt::format(
        R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}" {}>)", left, top,
        width, height, fill, attributes);
    if (!tip.empty()) out_ << "<title>" << escaped(tip) << "</title>";
    out_ << "</rect>\n";
  }

  static std::string summary(const Panel& panel) {
    const TimelineBlock& block = panel.block;
    if (panel.view.spans.empty()) {
      return fmt::format("step {}, layer {}: nothing was recorded", block.step, block.layer);
    }
    const double bubbles = milliseconds(panel.view.bubble_time());
    const double total = milliseconds(panel.view.compute_time);
    return fmt::format("step {}, layer {}: {:.3f} ms; bubbles {:.3f} ms ({:.1f}%)", block.step,
                       block.layer, total, bubbles, total > 0 ? 100 * bubbles / total : 0.0);
  }

  // Returns the number of rows the legend takes.
  int place_legend(bool draw) {
    double left = left_;
    int row = 0;
    const auto entry = [&](std::string_view name, std::string_view fill) {
      const double width = 30 + kCharacter * static_cast<double>(name.size());
      if (left + width > kWidth - kRight) left = left_, ++row;
      if (draw) {
        const double top = legend_top_ + kLegendRow * row;
        box(left, top, 14, 14, fill);
        text(left + 19, top + 11, name, "");
      }
      left += width;
    };
    for (const std::string_view work : colours_.works()) entry(work, colours_.of(work));
    const bool bubbles = std::any_of(panels_.begin(), panels_.end(), [](const Panel& panel) {
      return !panel.view.bubbles.empty();
    });
    if (bubbles) entry("bubble", kBubbleFill);
    return row + 1;
  }

  void draw(const Panel& panel, double top) {
    if (panel.view.spans.empty()) return;
    if (!panel.heading.empty()) {
      text(left_, top + 12, fmt::format("{}, {}", panel.heading, summary(panel)),
           R"(font-weight="bold")");
      top += kTextRow;
    }
    axis(top - 4, top + kRowPitch * static_cast<double>(panel.rows.size()));
    rows(panel, top);
  }

  // Ticks 1, 2 or 5 times a power of ten apart, about ten of them.
  void axis(double top, double bottom) {
    const double power = std::pow(10.0, std::floor(std::log10(window_ / 10)));
    const double ratio = window_ / 10 / power;
    const double tick = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(tick) + 1e-9)));
    for (int i = 0; i * tick <= window_ * (1 + 1e-9); ++i) {
      const double at = left_ + i * tick / window_ * (kWidth - left_ - kRight);
      out_ << fmt::format(
          R"(<line x1="{0:.2f}" y1="{1:.2f}" x2="{0:.2f}" y2="{2:.2f}" class="tl-line"/>)"
          "\n",
          at, top, bottom + 4);
      text(at, bottom + 18, fmt::format("{:.{}f}", i * tick, decimals), R"(text-anchor="middle")");
    }
    text(left_ - 10, bottom + 18, "ms", R"(text-anchor="end")");
  }

  void rows(const Panel& panel, double top) {
    for (const auto& [lane, spans] : panel.rows) {
      text(left_ - 10, top + kRowHeight / 2 + 4, lane_name(lane), R"(text-anchor="end")");
      if (lane == Lane::kCompute) draw_bubbles(panel, top);
      for (const TimelineSpan* span : spans) draw_span(panel, *span, top);
      top += kRowPitch;
    }
  }

  void draw_bubbles(const Panel& panel, double top) {
    for (const Bubble& bubble : panel.view.bubbles) {
      const bool intra = bubble.kind == BubbleKind::intra_layer;
      const double left = x(panel, bubble.start);
      box(left, top, x(panel, bubble.end) - left, kRowHeight, kBubbleFill, R"(class="bubble")",
          fmt::format("{}-layer bubble, {:.3f} ms", intra ? "intra" : "inter",
                      milliseconds(bubble.end - bubble.start)));
    }
  }

  void draw_span(const Panel& panel, const TimelineSpan& span, double top) {
    const double left = x(panel, span.start);
    const double width = std::max(x(panel, span.end) - left, 0.5);  // a short span stays visible
    const bool own = is_of(span, panel.block);
    box(left, top, width, kRowHeight, colours_.of(span.work),
        own ? R"(stroke="#ffffff" stroke-width="0.5")"
            : R"(stroke="#ffffff" stroke-width="0.5" opacity="0.35")",
        tip(span));
    const std::string number = span.expert < 0 ? "" : std::to_string(span.expert);
    if (own && !number.empty() && width > kCharacter * static_cast<double>(number.size()) + 4) {
      text(left + width / 2, top + kRowHeight / 2 + 4, number, R"(text-anchor="middle")",
           R"(fill="#1c2226")");  // on a box, which is light in every scheme
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
  const std::deque<Panel>& panels_;
  std::vector<TimelineSpan> spans_;  // of all panels
  WorkColours colours_;
  double window_ = 1e-6;  // milliseconds on the width of every panel
  double legend_top_ = kLegendTop;
  double left_ = kLeastLeft;  // x of time 0; lane names lie before it
};

}  // namespace

void write_timeline_svg(std::ostream& out, const TimelinePicture& picture) {
  const std::optional<TimelineBlock> planned = longest_typical_block(picture.planned);
  std::deque<Panel> panels;
  panels.emplace_back(picture.spans, picture.block, planned ? "measured" : "");
  if (planned) panels.emplace_back(picture.planned, *planned, "planned");
  Drawing(out, panels).write(picture.title, picture.settings);
}

}  // namespace klotski
