#pragma once

#include <ostream>

#include "report/roofline_figure.h"

namespace klotski {

// Draws a plot with logarithmic axes: the roofs, the turning points as vertical lines, and each
// operation where it runs and at the rate it attains there. Levels without any rate give a drawing
// that says so. The caller checks the stream; colours come from the page.
void write_roofline_svg(std::ostream& out, const RooflinePlot& plot);

}  // namespace klotski
