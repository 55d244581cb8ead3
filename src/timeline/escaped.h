#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace klotski {

// One line of text for an element of SVG or HTML, or for an attribute in double quotes; control
// characters and invalid UTF-8 as in one_line, cut after max_bytes.
std::string escaped(std::string_view text, size_t max_bytes = 1000);

}  // namespace klotski
