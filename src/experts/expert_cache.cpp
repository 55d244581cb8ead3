#include "experts/expert_cache.h"

#include <cassert>
#include <utility>

#include "base/error.h"

namespace klotski {

ExpertLease::ExpertLease(ExpertLease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), key_(other.key_), slot_(other.slot_) {}

ExpertLease& ExpertLease::operator=(ExpertLease&& other) noexcept {
  if (this != &other) {
    release();
    cache_ = std::exchange(other.cache_, nullptr);
    key_ = other.key_;
    slot_ = other.slot_;
  }
  return *this;
}

void ExpertLease::release() {
  if (ExpertCache* cache = std::exchange(cache_, nullptr)) cache->return_lease(slot_);
}

ExpertCache::ExpertCache(int64_t slots, std::unique_ptr<EvictionRule> rule)
    : rule_(std::move(rule)) {
  if (slots < 1) {
    fail(ErrorKind::internal, "expert cache: expected at least one slot, found {}", slots);
  }
  slots_.resize(static_cast<size_t>(slots));
  for (int64_t slot = 0; slot < slots; ++slot) free_.insert(free_.end(), slot);
}

ExpertCache::~ExpertCache() { assert(leased_slots_ == 0); }

std::optional<ExpertCache::Grant> ExpertCache::acquire(ExpertKey key) {
  if (const auto found = slot_of_.find(key); found != slot_of_.end()) {
    return grant(key, found->second, false);
  }
  if (free_or_evictable() == 0) return std::nullopt;
  if (free_.empty()) evict();
  return grant(key, free_.extract(free_.begin()).value(), true);
}

ExpertCache::Grant ExpertCache::grant(ExpertKey key, int64_t slot, bool must_load) {
  rule_->used(key, 1);
  ++(must_load ? counters_.misses : counters_.hits);
  Slot& state = slots_[static_cast<size_t>(slot)];
  if (must_load) {
    state.key = key;
    slot_of_.emplace(key, slot);
  }
  if (state.leases++ == 0) ++leased_slots_;
  return {ExpertLease(this, key, slot), must_load};
}

// Resident experts without lease.
void ExpertCache::list_candidates() {
  candidates_.clear();
  for (const Slot& slot : slots_) {
    if (slot.key && slot.leases == 0) candidates_.push_back(*slot.key);
  }
}

bool ExpertCache::would_stay(ExpertKey key) {
  if (!free_.empty()) return true;
  list_candidates();
  if (candidates_.empty()) return false;
  return rule_->worth_replacing(candidates_[rule_->victim(candidates_)], key);
}

// Frees one slot; there is a resident expert without lease.
void ExpertCache::evict() {
  list_candidates();
  forget(candidates_[rule_->victim(candidates_)]);
  ++counters_.evictions;
}

void ExpertCache::forget(ExpertKey key) {
  const auto found = slot_of_.find(key);
  if (found == slot_of_.end()) return;
  Slot& slot = slots_[static_cast<size_t>(found->second)];
  slot.key.reset();
  if (slot.leases == 0) free_.insert(found->second);
  slot_of_.erase(found);
}

void ExpertCache::withhold(int64_t slots) {
  if (leased_slots_ > 0 || slots >= this->slots()) {
    fail(ErrorKind::internal, "{} of {} expert slots were to be withheld, {} under lease", slots,
         this->slots(), leased_slots_);
  }
  const int64_t usable = this->slots() - slots;
  for (int64_t slot = 0; slot < this->slots(); ++slot) {
    const std::optional<ExpertKey> key = slots_[static_cast<size_t>(slot)].key;
    if (slot >= usable) {
      if (key) forget(*key);
      free_.erase(slot);
    } else if (!key) {
      free_.insert(slot);
    }
  }
  withheld_ = slots;
}

void ExpertCache::return_lease(int64_t slot) {
  Slot& state = slots_[static_cast<size_t>(slot)];
  if (--state.leases > 0) return;
  --leased_slots_;
  if (!state.key) free_.insert(slot);
}

}  // namespace klotski
