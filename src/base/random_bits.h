#pragma once

#include <cstdint>

namespace klotski {

// Bits that nobody can foretell, from the system: for names, seeds and secrets. Throws (internal)
// where it has none. Numbers that a test or a seed must repeat come from base/noise.h.
uint64_t random_bits();

}  // namespace klotski
