#pragma once

#include <span>
#include <vector>

#include "device/device.h"

namespace klotski {

// Alignment of the parts of a copy: where a part begins, both addresses are as far from a multiple
// of this as those of the copy.
inline constexpr uint64_t kPartAlignment = 16;

// Cuts pieces into parts of about equal size, none larger than their bytes / `parts`, rounded up:
// work for `parts` threads that copy at once, however different the pieces are. At most parts +
// pieces of them.
std::vector<CopyPiece> even_parts(std::span<const CopyPiece> pieces, uint64_t parts);

}  // namespace klotski
