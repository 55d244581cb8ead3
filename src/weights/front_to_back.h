#pragma once

#include <cstddef>
#include <functional>

namespace klotski {

// Calls work(0) .. work(count - 1) on a few threads, which take them in this order, so that files
// are read and written from front to back. The first exception ends it early and is thrown here.
void front_to_back(size_t count, const std::function<void(size_t index)>& work);

}  // namespace klotski
