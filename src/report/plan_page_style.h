#pragma once

#include <string_view>

namespace klotski {

// The style sheet of the page and of the drawings in it, for light and dark screens.
std::string_view plan_page_style();

}  // namespace klotski
