#pragma once

#include <span>
#include <vector>

#include "device/device.h"

namespace klotski {

// Where a part of a copy begins, both addresses are as far from a multiple of this as the copy's.
inline constexpr uint64_t kPartAlignment = 16;

// The same bytes in parts of about the same size, none larger than one of `parts` of all bytes,
// rounded up: work for so many who copy at once, however different the pieces are. At most
// parts + pieces of them.
std::vector<CopyPiece> even_parts(std::span<const CopyPiece> pieces, uint64_t parts);

}  // namespace klotski
