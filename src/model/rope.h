#pragma once

#include <vector>

#include "model/description.h"

namespace klotski {

// Radians a position, one a rotated pair. The kinds `dynamic` and `longrope` depend on the
// sequence's length after the step (the largest position + 1); other kinds ignore it.
std::vector<float> rope_frequencies(const Rope& rope, int64_t sequence_length);
bool frequencies_depend_on_length(const Rope& rope);

}  // namespace klotski
