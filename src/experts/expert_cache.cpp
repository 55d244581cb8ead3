#include "experts/expert_cache.h"

#include <algorithm>
#include <cassert>
#include <functional>
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
  for (int64_t slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

ExpertCache::~ExpertCache() { assert(leased_slots_ == 0); }

std::optional<ExpertCache::Grant> ExpertCache::acquire(ExpertKey key) {
  const std::optional<Found> found = find_slot(key);
  if (!found) return std::nullopt;
  rule_->used(key, 1);
  ++(found->must_load ? counters_.misses : counters_.hits);
  return grant(key, *found);
}

std::optional<ExpertCache::Grant> ExpertCache::acquire_ahead(ExpertKey key) {
  const std::optional<Found> found = find_slot(key);
  if (!found) return std::nullopt;
  rule_->brought_ahead(key);
  return grant(key, *found);
}

// The expert's slot, or one that is free for it from now on; none where all are under lease.
std::optional<ExpertCache::Found> ExpertCache::find_slot(ExpertKey key) {
  if (const int32_t slot = slot_of(key); slot != kNoSlot) return Found{slot, false};
  if (free_or_evictable() == 0) return std::nullopt;
  if (free_.empty()) evict();
  const int64_t slot = free_.back();
  free_.pop_back();
  return Found{slot, true};
}

ExpertCache::Grant ExpertCache::grant(ExpertKey key, const Found& found) {
  Slot& state = slots_[static_cast<size_t>(found.slot)];
  if (found.must_load) {
    state.key = key;
    set_slot(key, static_cast<int32_t>(found.slot));
  } else if (state.leases == 0) {
    remove_evictable(key);
  }
  if (state.leases++ == 0) ++leased_slots_;
  return {ExpertLease(this, key, found.slot), found.must_load};
}

int32_t ExpertCache::slot_of(ExpertKey key) const {
  const auto layer = static_cast<size_t>(key.layer.value);
  const auto expert = static_cast<size_t>(key.expert.value);
  if (layer >= layers_.size() || expert >= layers_[layer].slot_of.size()) return kNoSlot;
  return layers_[layer].slot_of[expert];
}

std::optional<int64_t> ExpertCache::leased_slot(ExpertKey key) const {
  const int32_t slot = slot_of(key);
  if (slot == kNoSlot || slots_[static_cast<size_t>(slot)].leases == 0) return std::nullopt;
  return slot;
}

int64_t ExpertCache::residency_version(LayerId layer) const {
  const auto index = static_cast<size_t>(layer.value);
  return index < layers_.size() ? layers_[index].residency_version : 0;
}

ExpertCache::LayerState& ExpertCache::layer_of(ExpertKey key) {
  const auto index = static_cast<size_t>(key.layer.value);
  if (index >= layers_.size()) layers_.resize(index + 1);
  return layers_[index];
}

void ExpertCache::set_slot(ExpertKey key, int32_t slot) {
  LayerState& layer = layer_of(key);
  const auto expert = static_cast<size_t>(key.expert.value);
  if (expert >= layer.slot_of.size()) layer.slot_of.resize(expert + 1, kNoSlot);
  layer.slot_of[expert] = slot;
  ++layer.residency_version;
}

void ExpertCache::add_evictable(ExpertKey key) {
  LayerState& layer = layer_of(key);
  std::vector<ExpertKey>& keys = layer.evictable;
  keys.insert(std::lower_bound(keys.begin(), keys.end(), key), key);
  layer.known_version = -1;
}

void ExpertCache::remove_evictable(ExpertKey key) {
  LayerState& layer = layer_of(key);
  std::vector<ExpertKey>& keys = layer.evictable;
  keys.erase(std::lower_bound(keys.begin(), keys.end(), key));
  layer.known_version = -1;
}

// The resident expert of a layer that leaves first; at least one is not under lease.
ExpertKey ExpertCache::leaves_first(LayerState& layer, LayerId id) {
  const int64_t version = rule_->order_version(id);
  if (layer.known_version == version) return layer.leaves_first;
  layer.leaves_first = layer.evictable[rule_->victim(layer.evictable)];
  layer.known_version = version;
  return layer.leaves_first;
}

std::optional<ExpertKey> ExpertCache::next_to_leave() {
  of_layers_.clear();
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].evictable.empty()) continue;
    of_layers_.push_back(leaves_first(layers_[i], LayerId(static_cast<int64_t>(i))));
  }
  if (of_layers_.empty()) return std::nullopt;
  return of_layers_[rule_->victim(of_layers_)];
}

bool ExpertCache::would_stay(ExpertKey key) {
  if (!free_.empty()) return true;
  const std::optional<ExpertKey> leaving = next_to_leave();
  return leaving && rule_->worth_replacing(*leaving, key);
}

// Frees one slot; there is a resident expert without lease.
void ExpertCache::evict() {
  forget(*next_to_leave());
  ++counters_.evictions;
}

void ExpertCache::forget(ExpertKey key) {
  const int32_t found = slot_of(key);
  if (found == kNoSlot) return;
  Slot& slot = slots_[static_cast<size_t>(found)];
  slot.key.reset();
  set_slot(key, kNoSlot);
  if (slot.leases > 0) return;
  remove_evictable(key);
  add_free(found);
}

void ExpertCache::add_free(int64_t slot) {
  free_.insert(std::lower_bound(free_.begin(), free_.end(), slot, std::greater<>()), slot);
}

void ExpertCache::remove_free(int64_t slot) {
  const auto found = std::lower_bound(free_.begin(), free_.end(), slot, std::greater<>());
  if (found != free_.end() && *found == slot) free_.erase(found);
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
      remove_free(slot);
    } else if (!key) {
      remove_free(slot);  // in case it is listed already
      add_free(slot);
    }
  }
  withheld_ = slots;
}

void ExpertCache::return_lease(int64_t slot) {
  Slot& state = slots_[static_cast<size_t>(slot)];
  if (--state.leases > 0) return;
  --leased_slots_;
  if (state.key) {
    add_evictable(*state.key);
  } else {
    add_free(slot);
  }
}

}  // namespace klotski
