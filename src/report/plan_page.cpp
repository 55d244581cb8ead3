#include "report/plan_page.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string_view>

#include "report/markup.h"
#include "report/plan_page_style.h"
#include "report/roofline_svg.h"
#include "timeline/svg.h"

namespace klotski {

namespace {

void open_section(std::ostream& out, std::string_view title, std::string_view explanation) {
  out << fmt::format("<section>\n<h2>{}</h2>\n<p>{}</p>\n", title, explanation);
}

void write_head(std::ostream& out, const PlanPage& page) {
  // The policy has a browser refuse scripts and anything from elsewhere.
  out << R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
)";
  const std::string title = escaped(page.title);
  out << "<title>" << title << "</title>\n<style>" << plan_page_style()
      << "</style>\n</head>\n<body>\n<main>\n<h1>" << title << "</h1>\n";
}

std::string rate_cell(const Attainable& attainable) {
  return fmt::format("{}, {} binds", with_prefix(attainable.flops_per_second, "FLOP/s"),
                     roof_name(attainable.roof));
}

std::string intensity_cell(double intensity) {
  return std::isfinite(intensity) ? short_number(intensity) : "nothing is read";
}

void write_operation_row(std::ostream& out, const LevelPair& levels,
                         const MarkedOperation& marked) {
  const Operation& operation = marked.operation;
  out << fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                     escaped(marked.name), intensity_cell(operation.upper_intensity()),
                     intensity_cell(operation.lower_intensity()),
                     short_number(second_turning_point(levels, operation)),
                     rate_cell(attainable_above(levels, operation)));
  if (levels.lower.peak_flops_per_second > 0) {
    out << fmt::format("<td>{}</td><td>{}</td>", rate_cell(attainable_below(levels, operation)),
                       better_below(levels, operation) ? "below" : "above");
  }
  out << "</tr>\n";
}

// The numbers behind the marks, also of operations for which the drawing has no room.
void write_operations(std::ostream& out, const RooflinePlot& plot) {
  if (plot.operations.empty() || !can_be_asked(plot.levels)) return;
  out << fmt::format(
      "<table>\n<tr><th>operation</th><th>FLOP a byte<br/>of {}</th><th>FLOP a byte<br/>of {}</th>"
      "<th>P2</th><th>moved up and computed</th>",
      escaped(plot.upper_name), escaped(plot.lower_name));
  if (plot.levels.lower.peak_flops_per_second > 0) {
    out << "<th>computed below</th><th>faster</th>";
  }
  out << "</tr>\n";
  for (const MarkedOperation& marked : plot.operations) {
    if (can_be_asked(marked.operation)) write_operation_row(out, plot.levels, marked);
  }
  out << "</table>\n";
}

void write_rooflines(std::ostream& out, const std::vector<RooflinePlot>& plots) {
  if (plots.empty()) return;
  open_section(out, "Roofs",
               "How fast an operation can run for the FLOPs it does with each byte it reads. Left "
               "of P1 it is faster where its data lies; up to P2 the link between the two levels "
               "limits it, beyond P2 a roof of the upper level.");
  for (const RooflinePlot& plot : plots) {
    out << fmt::format("<h3>{}</h3>\n<div class=\"panel drawing\">\n", escaped(plot.title));
    write_roofline_svg(out, plot);
    write_operations(out, plot);
    out << "</div>\n";
  }
  out << "</section>\n";
}

void write_timeline(std::ostream& out, const std::vector<TimelineSpan>& spans) {
  const std::optional<TimelineBlock> block = longest_typical_block(spans);
  if (!block) return;
  open_section(out, "One layer of a predicted pass",
               "To scale; what is pale belongs to other layers, what is hatched waits for a "
               "transfer.");
  out << "<div class=\"panel white\">\n";  // the drawing has its own colours, for a white ground
  write_timeline_svg(out, spans, *block, "predicted, a layer of median duration");
  out << "</div>\n</section>\n";
}

void write_placement(std::ostream& out, const std::vector<PreviewedUnit>& placement) {
  if (placement.empty()) return;
  open_section(
      out, "Where the weights lie",
      "A row for each layer. The stronger the colour, the more passes find the weights in memory.");
  out << "<div class=\"panel drawing\">\n";
  write_placement_svg(out, placement);
  out << "</div>\n</section>\n";
}

}  // namespace

void write_plan_page(std::ostream& out, const PlanPage& page) {
  write_head(out, page);
  if (!page.text.empty()) {
    out << "<section>\n<div class=\"panel\"><pre>" << escaped_lines(page.text)
        << "</pre></div>\n</section>\n";
  }
  write_rooflines(out, page.rooflines);
  write_timeline(out, page.spans);
  write_placement(out, page.placement);
  out << "</main>\n</body>\n</html>\n";
}

}  // namespace klotski
