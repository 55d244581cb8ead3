#pragma once

#include <string_view>

namespace klotski {

// The page of `/`: tokens a second, queue, memory against its limits and experts found, asked for
// every second from /stats. It has no foreign parts, and is readable on a phone and in the dark.
std::string_view dashboard_page();

}  // namespace klotski
