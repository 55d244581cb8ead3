#include "kv/paged_cache.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "memory/alignment.h"
#include "tensor/dtype.h"

namespace klotski {

namespace {

uint64_t element_bytes(DType type) {
  if (type != DType::F32 && type != DType::BF16) {
    fail(ErrorKind::internal, "keys and values are kept as F32 or BF16, not as {}",
         dtype_name(type));
  }
  return static_cast<uint64_t>(bytes_per_element(type));
}

// Of a page [keys | values] of one layer.
uint64_t layer_bytes(const Layer& layer, DType type) {
  return static_cast<uint64_t>(2 * kKvPageTokens * layer.attention.kv_width()) *
         element_bytes(type);
}

static_assert(2 * kKvPageTokens * sizeof(uint16_t) % PagedKvCache::kLineBytes == 0,
              "a layer of any width takes whole lines");

}  // namespace

std::vector<uint64_t> PagedKvCache::spilled_page_bytes(const ModelDescription& model, DType type) {
  std::vector<uint64_t> bytes;
  for (const Layer& layer : model.layers) {
    bytes.push_back(round_up_to_alignment(layer_bytes(layer, type)));
  }
  return bytes;
}

uint64_t PagedKvCache::page_bytes(const ModelDescription& model, DType type) {
  uint64_t bytes = 0;
  for (const Layer& layer : model.layers) bytes += layer_bytes(layer, type);
  return bytes;
}

PagedKvCache::PagedKvCache(const ModelDescription& model, const KvLimits& limits)
    : type_(limits.type),
      streaming_(limits.streaming),
      memory_(limits.memory),
      spill_(limits.spill_bytes, spilled_page_bytes(model, type_), limits.spill_store) {
  for (const Layer& layer : model.layers) {
    layer_offset_.push_back(page_bytes_);
    layer_width_.push_back(layer.attention.kv_width());
    page_bytes_ += layer_bytes(layer, type_);
  }
  capacity_pages_ = static_cast<int64_t>(
      std::min<uint64_t>(limits.memory_bytes / page_bytes_, static_cast<uint64_t>(INT32_MAX)));
}

int64_t PagedKvCache::pages_needed(int64_t total_tokens, int64_t step_tokens) const {
  const int64_t all = pages_for(total_tokens);
  if (!streaming_.on()) return all;
  // The window and the step may begin and end in the middle of a page.
  const int64_t seen = streaming_.window - 1 + step_tokens;
  return std::min(all, streaming_.sink_pages() + pages_for(seen) + 1);
}

bool PagedKvCache::place(KvSequence& sequence, int64_t total_tokens, int64_t step_tokens) {
  if (sequence.booked_ > 0) fail(ErrorKind::internal, "a sequence was placed twice");
  const int64_t pages = pages_needed(total_tokens, step_tokens);
  if (book(sequence, pages)) return true;
  sequence.spilled_ = true;
  if (book(sequence, pages)) return true;
  sequence.spilled_ = false;
  return false;
}

bool PagedKvCache::book(KvSequence& sequence, int64_t pages) {
  if (sequence.spilled_) {
    const std::optional<std::vector<int32_t>> places = spill_.take(pages);
    if (!places) return false;
    sequence.spare_.insert(sequence.spare_.begin(), places->rbegin(), places->rend());
  } else {
    if (pages > capacity_pages_ - booked_pages_) return false;
    booked_pages_ += pages;
  }
  sequence.booked_ += pages;
  return true;
}

bool PagedKvCache::reserve(KvSequence& sequence, int64_t tokens) {
  const int64_t missing = std::max<int64_t>(
      pages_for(sequence.length_ + tokens) - static_cast<int64_t>(sequence.pages_.size()), 0);
  const int64_t unbooked = sequence.live_pages() + missing - sequence.booked_;
  if (unbooked > 0 && !book(sequence, unbooked)) return false;
  for (int64_t i = 0; i < missing; ++i) sequence.pages_.push_back(next_page(sequence));
  sequence.reserved_ = tokens;
  return true;
}

// A page among those booked.
int32_t PagedKvCache::next_page(KvSequence& sequence) {
  if (!sequence.spilled_ && free_.empty()) {
    if (memory_ == nullptr) storage_.push_back(std::make_unique<Line[]>(page_bytes_ / kLineBytes));
    free_.push_back(pages_made_++);
  }
  std::vector<int32_t>& source = sequence.spilled_ ? sequence.spare_ : free_;
  const int32_t page = source.back();
  source.pop_back();
  if (!sequence.spilled_) ++pages_in_use_;
  return page;
}

void PagedKvCache::commit(KvSequence& sequence, int64_t tokens) {
  sequence.length_ += tokens;
  sequence.reserved_ = 0;
  if (streaming_.on()) give_back_unseen(sequence);
}

// Pages that neither the next token nor any after it can see.
void PagedKvCache::give_back_unseen(KvSequence& sequence) {
  const int64_t window_begin = sequence.length_ - streaming_.window + 1;
  const int64_t sink_pages = streaming_.sink_pages();
  for (int64_t page = sink_pages + sequence.given_back_; (page + 1) * kPageTokens <= window_begin;
       ++page) {
    int32_t& place = sequence.pages_[static_cast<size_t>(page)];
    if (sequence.spilled_) {
      sequence.spare_.push_back(place);
    } else {
      free_.push_back(place);
      --pages_in_use_;
    }
    place = KvSequence::kGivenBack;
    ++sequence.given_back_;
  }
}

void PagedKvCache::release(KvSequence& sequence) {
  std::vector<int32_t>& pages = sequence.pages_;
  std::erase(pages, KvSequence::kGivenBack);
  if (sequence.spilled_) {
    spill_.give_back(pages);
    spill_.give_back(sequence.spare_);
  } else {
    pages_in_use_ -= static_cast<int64_t>(pages.size());
    booked_pages_ -= sequence.booked_;
    free_.insert(free_.end(), pages.begin(), pages.end());
  }
  sequence = KvSequence();
}

uint64_t PagedKvCache::row_bytes(LayerId layer) const {
  return static_cast<uint64_t>(layer_width_[static_cast<size_t>(layer.value)]) *
         element_bytes(type_);
}

KvView PagedKvCache::pages(const KvSequence& sequence, LayerId layer, const KvStage* stage) const {
  const uint64_t keys_bytes = kPageTokens * row_bytes(layer);
  KvView view;
  view.type_ = type_;
  view.kept_ = streaming_;
  for (size_t i = 0; i < sequence.pages_.size(); ++i) {
    const bool given_back = sequence.pages_[i] == KvSequence::kGivenBack;
    std::byte* page = given_back ? nullptr : page_at(sequence, layer, i, stage);
    view.keys_.push_back(page);
    view.values_.push_back(given_back ? nullptr : page + keys_bytes);
  }
  return view;
}

// The layer's [keys | values] of a page, wherever they are now.
std::byte* PagedKvCache::page_at(const KvSequence& sequence, LayerId layer, size_t page,
                                 const KvStage* stage) const {
  if (!sequence.spilled_) {
    const auto number = static_cast<size_t>(sequence.pages_[page]);
    std::byte* begin = memory_ != nullptr ? memory_ + number * page_bytes_
                                          : reinterpret_cast<std::byte*>(storage_[number].get());
    return begin + layer_offset_[static_cast<size_t>(layer.value)];
  }
  if (!stage) {
    std::byte* below = spill_.page(layer, sequence.pages_[page]);
    if (below) return below;
  } else if (stage->layer_ == layer) {
    for (const KvStage::Area& area : stage->areas_) {
      if (area.sequence == &sequence) return staged_page(area, layer, page);
    }
  }
  fail(ErrorKind::internal, "layer {}: a spilled sequence is not in the stage", layer.value);
}

}  // namespace klotski
