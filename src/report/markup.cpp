#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace klotski {

std::string escaped_lines(std::string_view text) {
  std::string safe;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    safe += escaped(text.substr(at, end - at), text.size());
    if (end < text.size()) safe += '\n';
    at = end + 1;
  }
  return safe;
}

std::string with_prefix(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; prefix + 1 < kPrefixes.size() && value >= 999.5; ++prefix) value /= 1000;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  if (value >= 999.5) return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit);
  return fmt::format("{:.{}f} {}{}", value, decimals, kPrefixes[prefix], unit);
}

std::string short_number(double value) {
  return value >= 1000 && value < 1e6 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

double text_width(std::string_view text) {
  constexpr double kCharacter = 6.6;
  const auto starts_character = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  };
  return kCharacter *
         static_cast<double>(std::count_if(text.begin(), text.end(), starts_character));
}

SvgWriter::SvgWriter(std::ostream& out, double width, double height, std::string_view label)
    : out_(out) {
  out_ << fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
                      R"(viewBox="0 0 {0:.0f} {1:.0f}" role="img" aria-label="{2}">)"
                      "\n",
                      width, height, escaped(label));
}

void SvgWriter::end_shape(std::string_view name, std::string_view style, std::string_view tip) {
  out_ << fmt::format(R"( class="{}")", style);
  if (tip.empty()) {
    out_ << "/>\n";
  } else {
    out_ << fmt::format("><title>{}</title></{}>\n", escaped(tip), name);
  }
}

void SvgWriter::line(double x1, double y1, double x2, double y2, std::string_view style,
                     std::string_view tip) {
  out_ << fmt::format(R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}")", x1, y1, x2, y2);
  end_shape("line", style, tip);
}

void SvgWriter::box(const Box& box, std::string_view style, std::string_view tip) {
  out_ << fmt::format(R"(<rect x="{:.6g}" y="{:.6g}" width="{:.6g}" height="{:.6g}")", box.left,
                      box.top, box.width, box.height);
  end_shape("rect", style, tip);
}

void SvgWriter::circle(double x, double y, double radius, std::string_view style,
                       std::string_view tip) {
  out_ << fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{:.2f}")", x, y, radius);
  end_shape("circle", style, tip);
}

void SvgWriter::text(double x, double baseline, std::string_view content, std::string_view style) {
  out_ << fmt::format(R"(<text x="{:.2f}" y="{:.2f}" class="{}">{}</text>)"
                      "\n",
                      x, baseline, style, escaped(content));
}

void SvgWriter::close() { out_ << "</svg>\n"; }

}  // namespace klotski
