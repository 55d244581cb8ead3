#pragma once

// Helpers of the drawings of this folder: text made safe for HTML, numbers for readers, and the few
// SVG elements they are made of. Colours come from the page (plan_page_style.h) by class.

#include <ostream>
#include <string>
#include <string_view>

#include "timeline/escaped.h"

namespace klotski {

// escaped() for text of many lines of any length.
std::string escaped_lines(std::string_view text);

// "1.21 TFLOP/s": three digits before a unit with its decimal prefix.
std::string with_prefix(double value, std::string_view unit);

// "0.25", "42", "7562.5": an intensity for a reader.
std::string short_number(double value);

// About how many pixels text takes at the size the drawings use.
double text_width(std::string_view text);

// Position and size, in pixels.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// Elements of a drawing. `style` is one class or several of the page's.
class SvgWriter {
 public:
  SvgWriter(std::ostream& out, double width, double height, std::string_view label);

  // `tip` is the text that a browser shows under the pointer.
  void line(double x1, double y1, double x2, double y2, std::string_view style,
            std::string_view tip = "");
  void box(const Box& box, std::string_view style, std::string_view tip = "");
  void circle(double x, double y, double radius, std::string_view style, std::string_view tip = "");
  void text(double x, double baseline, std::string_view content, std::string_view style = "");
  void close();

 private:
  void end_shape(std::string_view name, std::string_view style, std::string_view tip);

  std::ostream& out_;
};

}  // namespace klotski
