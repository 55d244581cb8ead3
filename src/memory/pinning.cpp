#include "memory/pinning.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

std::vector<std::span<std::byte>> pieces_to_pin(std::span<std::byte> memory, uint64_t unit_bytes) {
  constexpr uint64_t kPieceBytes = 256 * kMiB;
  const size_t piece = std::max<uint64_t>(kPieceBytes / unit_bytes, 1) * unit_bytes;
  std::vector<std::span<std::byte>> pieces;
  for (; !memory.empty(); memory = memory.subspan(pieces.back().size())) {
    pieces.push_back(memory.first(std::min(memory.size(), piece)));
  }
  return pieces;
}

Pinning::Pinning(Device& device, std::vector<std::span<std::byte>> pieces)
    : device_(device), pieces_(std::move(pieces)) {
  for (const std::span<std::byte> piece : pieces_) total_bytes_ += piece.size();
  thread_ = std::thread([this] { pin_all(); });
}

Pinning::~Pinning() {
  stop_ = true;
  wait();
  for (size_t i = 0; i < pinned_pieces_; ++i) device_.unpin(pieces_[i]);
}

void Pinning::wait() {
  if (thread_.joinable()) thread_.join();
}

void Pinning::pin_all() {
  try {
    for (; pinned_pieces_ < pieces_.size() && !stop_; ++pinned_pieces_) {
      if (!device_.pin(pieces_[pinned_pieces_])) break;
      pinned_bytes_ += pieces_[pinned_pieces_].size();
    }
  } catch (const Error&) {
    // Copies work without pinning, or report a broken device themselves.
  }
  refused_ = pinned_bytes_ < total_bytes_ && !stop_;
}

}  // namespace klotski
