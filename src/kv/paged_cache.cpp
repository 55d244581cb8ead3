#include "kv/paged_cache.h"

#include <algorithm>

#include "model/counts.h"

namespace klotski {

uint64_t PagedKvCache::page_bytes(const ModelDescription& model) {
  return static_cast<uint64_t>(kPageTokens * kv_numbers_per_token(model)) * sizeof(float);
}

PagedKvCache::PagedKvCache(const ModelDescription& model, const KvLimits& limits) {
  for (const Layer& layer : model.layers) {
    layer_offset_.push_back(page_floats_);
    layer_width_.push_back(layer.attention.kv_width());
    page_floats_ += static_cast<uint64_t>(2 * kPageTokens * layer.attention.kv_width());
  }
  capacity_pages_ = static_cast<int64_t>(
      std::min<uint64_t>(limits.memory_bytes / page_bytes(), static_cast<uint64_t>(INT32_MAX)));
}

bool PagedKvCache::reserve(KvSequence& sequence, int64_t tokens) {
  const int64_t missing =
      pages_for(sequence.length_ + tokens) - static_cast<int64_t>(sequence.pages_.size());
  if (pages_in_use_ + std::max<int64_t>(missing, 0) > capacity_pages_) return false;
  for (int64_t i = 0; i < missing; ++i) {
    if (free_.empty()) {
      storage_.push_back(std::make_unique<float[]>(page_floats_));
      free_.push_back(static_cast<int32_t>(storage_.size() - 1));
    }
    sequence.pages_.push_back(free_.back());
    free_.pop_back();
    ++pages_in_use_;
  }
  return true;
}

void PagedKvCache::write(const KvSequence& sequence, LayerId layer, int64_t first_position,
                         ConstRows keys, ConstRows values, KvStage*) {
  const int64_t width = layer_width_[static_cast<size_t>(layer.value)];
  for (int64_t i = 0; i < keys.count; ++i) {
    const int64_t position = first_position + i;
    const int32_t page = sequence.pages_[static_cast<size_t>(position / kPageTokens)];
    const int64_t offset = position % kPageTokens * width;
    std::copy_n(keys.row(i), width, keys_at(page, layer) + offset);
    std::copy_n(values.row(i), width, values_at(page, layer) + offset);
  }
}

KvPageList PagedKvCache::pages(const KvSequence& sequence, LayerId layer, const KvStage*) const {
  KvPageList list;
  for (const int32_t page : sequence.pages_) {
    list.keys.push_back(keys_at(page, layer));
    list.values.push_back(values_at(page, layer));
  }
  list.page_tokens = kPageTokens;
  return list;
}

void PagedKvCache::release(KvSequence& sequence) {
  pages_in_use_ -= static_cast<int64_t>(sequence.pages_.size());
  free_.insert(free_.end(), sequence.pages_.begin(), sequence.pages_.end());
  sequence.pages_.clear();
  sequence.length_ = 0;
  promised_ -= sequence.promised_;
  sequence.promised_ = 0;
}

float* PagedKvCache::keys_at(int32_t page, LayerId layer) const {
  return storage_[static_cast<size_t>(page)].get() +
         layer_offset_[static_cast<size_t>(layer.value)];
}

float* PagedKvCache::values_at(int32_t page, LayerId layer) const {
  return keys_at(page, layer) + kPageTokens * layer_width_[static_cast<size_t>(layer.value)];
}

}  // namespace klotski
