#include "device/copy_pieces.h"

#include <algorithm>

namespace klotski {

std::vector<CopyPiece> even_parts(std::span<const CopyPiece> pieces, uint64_t parts) {
  uint64_t bytes = 0;
  for (const CopyPiece& piece : pieces) bytes += piece.bytes;
  const uint64_t share = (bytes + parts - 1) / parts;
  const uint64_t most = (share + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  std::vector<CopyPiece> found;
  for (const CopyPiece& piece : pieces) {
    for (uint64_t begin = 0; begin < piece.bytes; begin += most) {
      found.push_back({piece.to + begin, piece.from + begin, std::min(most, piece.bytes - begin)});
    }
  }
  return found;
}

}  // namespace klotski
