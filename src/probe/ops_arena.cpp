#include "probe/ops_arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "probe/random_weights.h"

namespace klotski {

OpsArena::OpsArena(Tier& tier, const Processor& ops, std::string_view kind, uint64_t bytes)
    : ops_(ops) {
  if (ops.memory.readable) {
    program_.emplace(tier, kind, bytes);
    bytes_ = program_->bytes();
    return;
  }
  reservation_ = tier.reserve(kind, bytes);
  bytes_ = {ops.memory.take(bytes), static_cast<size_t>(bytes)};
}

OpsArena::~OpsArena() {
  if (!program_ && !bytes_.empty()) ops_.memory.give_back(bytes_.data(), bytes_.size());
}

OpsArena::OpsArena(OpsArena&& other) noexcept
    : ops_(other.ops_),
      program_(std::move(other.program_)),
      reservation_(std::move(other.reservation_)),
      bytes_(std::exchange(other.bytes_, {})) {}

void OpsArena::fill_random(std::span<std::byte> bytes, DType type) const {
  if (program_) return klotski::fill_random(ops_, bytes, type);
  std::vector<std::byte> piece(std::min<size_t>(bytes.size(), 4 * kMiB));
  klotski::fill_random(ops_, piece, type);
  for (size_t at = 0; at < bytes.size(); at += piece.size()) {
    ops_.memory.upload(bytes.data() + at, piece.data(), std::min(piece.size(), bytes.size() - at));
  }
}

}  // namespace klotski
