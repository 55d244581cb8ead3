#pragma once

#include <string_view>

namespace klotski {

// Plain English for measurements and warm-ups when the user gives no text: random tokens would
// falsify the routers' choices.
std::string_view sample_text();

}  // namespace klotski
