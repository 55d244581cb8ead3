#include "memory/tier.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

Reservation::Reservation(Reservation&& other) noexcept
    : tier_(std::exchange(other.tier_, nullptr)),
      kind_(other.kind_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    tier_ = std::exchange(other.tier_, nullptr);
    kind_ = other.kind_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() {
  if (tier_ != nullptr) tier_->release(kind_, bytes_);
  tier_ = nullptr;
  bytes_ = 0;
}

Tier::Tier(std::string name, uint64_t limit_bytes)
    : name_(std::move(name)), limit_bytes_(limit_bytes) {}

Reservation Tier::reserve(std::string_view kind, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    fail(ErrorKind::does_not_fit,
         "{}: {} bytes ({}) for {} do not fit: {} of {} bytes ({} of {}) are in use: {} too little",
         name_, bytes, format_bytes(bytes), kind, used_bytes_, limit_bytes_,
         format_bytes(used_bytes_), format_bytes(limit_bytes_),
         format_bytes(bytes - (limit_bytes_ - used_bytes_)));
  }
  const size_t index = index_of(kind);
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  TierUse& use = uses_[index];
  use.bytes += bytes;
  use.peak = std::max(use.peak, use.bytes);
  return {this, index, bytes};
}

size_t Tier::index_of(std::string_view kind) {
  const auto found = std::find_if(uses_.begin(), uses_.end(),
                                  [&](const TierUse& use) { return use.kind == kind; });
  if (found != uses_.end()) return static_cast<size_t>(found - uses_.begin());
  uses_.push_back({std::string(kind), 0, 0});
  return uses_.size() - 1;
}

void Tier::release(size_t kind, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
  uses_[kind].bytes -= bytes;
}

uint64_t Tier::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t Tier::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

std::vector<TierUse> Tier::uses() const {
  const std::lock_guard lock(mutex_);
  return uses_;
}

}  // namespace klotski
