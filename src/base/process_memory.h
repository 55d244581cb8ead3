#pragma once

#include <cstdint>

namespace klotski {

// Bytes of memory this process has in use, and the most it ever had. 0 where the system does not
// say.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

}  // namespace klotski
