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

// A picture's heading, with the facts that it is about.
void open_section(std::ostream& out, std::string_view title, std::string_view explanation,
                  std::string_view facts) {
  out << fmt::format("<section>\n<h2>{}</h2>\n<p>{}</p>\n", title, explanation);
  if (!facts.empty()) out << fmt::format("<p class=\"facts\">{}</p>\n", escaped(facts));
}

void close_section(std::ostream& out, const std::string& conclusion) {
  if (!conclusion.empty()) {
    out << fmt::format("<p class=\"conclusion\">{}</p>\n", escaped(conclusion));
  }
  out << "</section>\n";
}

// The roof that binds the last operation of the last plot, which is the plan's own.
std::string roof_conclusion(const RooflinePlot& plot) {
  if (plot.operations.empty() || !can_be_asked(plot.levels)) return {};
  const MarkedOperation& own = plot.operations.back();
  if (!can_be_asked(own.operation)) return {};
  const Attainable attainable = attainable_above(plot.levels, own.operation);
  return fmt::format("{}: at most {} for one expert by itself; of its roofs, {} binds.", own.name,
                     with_prefix(attainable.flops_per_second, "FLOP/s"),
                     roof_name(attainable.roof));
}

std::string placement_conclusion(const std::vector<PreviewedUnit>& placement) {
  constexpr double kAlways = 0.999;
  int64_t experts = 0;
  int64_t kept_experts = 0;
  int64_t others = 0;
  int64_t kept_others = 0;
  for (const PreviewedUnit& one : placement) {
    const bool expert = one.unit.kind == UnitKind::expert;
    ++(expert ? experts : others);
    if (one.memory_share >= kAlways) ++(expert ? kept_experts : kept_others);
  }
  if (kept_experts == experts && kept_others == others) {
    return "All weights stay in memory: after the first pass none is read again.";
  }
  return fmt::format(
      "{} of {} experts and {} of {} other parts are found in memory by every pass; the others "
      "are read again when they are used.",
      kept_experts, experts, kept_others, others);
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

void write_rooflines(std::ostream& out, const PlanPage& page) {
  const std::vector<RooflinePlot>& plots = page.rooflines;
  if (plots.empty()) return;
  open_section(
      out, "Roofs",
      "How fast an operation can run for the FLOPs it does with each byte it reads. Left "
      "of P1 it is faster where its data lies; up to P2 the link between the two levels "
      "limits it, beyond P2 a roof of the upper level. The roofs explain the plan; simulated "
      "runs decided it.",
      page.facts);
  for (const RooflinePlot& plot : plots) {
    out << fmt::format("<h3>{}</h3>\n<div class=\"panel drawing\">\n", escaped(plot.title));
    write_roofline_svg(out, plot);
    write_operations(out, plot);
    out << "</div>\n";
  }
  close_section(out, roof_conclusion(plots.back()));
}

void write_timeline(std::ostream& out, const PlanPage& page) {
  const std::optional<TimelineBlock> block = longest_typical_block(page.spans);
  if (!block) return;
  open_section(out, "One layer of a predicted pass",
               "One layer while all sequences decode, to scale; what is pale belongs to other "
               "layers, what is hatched waits for a transfer.",
               page.facts);
  out << "<div class=\"panel\">\n";
  write_timeline_svg(out, {.spans = page.spans,
                           .block = *block,
                           .title = "predicted, a decoding layer of median duration"});
  out << "</div>\n";
  close_section(out, {});  // the drawing ends with its own
}

void write_placement(std::ostream& out, const PlanPage& page) {
  if (page.placement.empty()) return;
  open_section(
      out, "Where the weights lie",
      "A row for each layer. The stronger the colour, the more passes find the weights in memory.",
      page.facts);
  out << "<div class=\"panel drawing\">\n";
  write_placement_svg(out, page.placement);
  out << "</div>\n";
  close_section(out, placement_conclusion(page.placement));
}

}  // namespace

void write_plan_page(std::ostream& out, const PlanPage& page) {
  write_head(out, page);
  if (!page.text.empty()) {
    out << "<section>\n<div class=\"panel\"><pre>" << escaped_lines(page.text)
        << "</pre></div>\n</section>\n";
  }
  write_rooflines(out, page);
  write_timeline(out, page);
  write_placement(out, page);
  out << "</main>\n</body>\n</html>\n";
}

}  // namespace klotski
