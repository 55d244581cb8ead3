#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace klotski {

// Plain English for measurements and warm-ups when the user gives no text: random tokens would
// falsify what routers choose.
std::string_view sample_text();

// The file that an option names, at most max_bytes; the sample where the path is empty.
std::string text_or_sample(const std::string& path, std::string_view option, uint64_t max_bytes);

}  // namespace klotski
