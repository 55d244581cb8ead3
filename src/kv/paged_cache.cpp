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

uint64_t part_bytes(const RowPart& part, DType type) {
  return static_cast<uint64_t>(kKvPageTokens * part.width) * element_bytes(type);
}

// Bytes of a page of one layer: its parts one after the other.
uint64_t layer_bytes(const CacheLayout& layer, DType type) {
  uint64_t bytes = 0;
  for (const RowPart& part : layer.parts) bytes += part_bytes(part, type);
  return MemoryPages::whole_lines(bytes);
}

}  // namespace

std::vector<uint64_t> PagedKvCache::spilled_page_bytes(const CacheLayouts& layouts, DType type) {
  std::vector<uint64_t> bytes;
  for (const CacheLayout& layer : layouts.layers()) {
    bytes.push_back(round_up_to_alignment(layer_bytes(layer, type)));
  }
  return bytes;
}

uint64_t PagedKvCache::page_bytes(const CacheLayouts& layouts, DType type) {
  uint64_t bytes = 0;
  for (const CacheLayout& layer : layouts.layers()) bytes += layer_bytes(layer, type);
  return bytes;
}

PagedKvCache::PagedKvCache(const CacheLayouts& layouts, const KvLimits& limits)
    : type_(limits.type),
      streaming_(limits.streaming),
      memory_(page_bytes(layouts, type_), limits.memory_bytes, limits.memory),
      spill_(limits.spill_bytes, spilled_page_bytes(layouts, type_), limits.spill_store),
      states_(layouts, limits.states, limits.spill_store) {
  uint64_t offset = 0;
  for (const CacheLayout& layer : layouts.layers()) {
    LayerPages& pages = layers_.emplace_back(LayerPages{.offset = offset, .part_offsets = {}});
    uint64_t before = 0;
    for (const RowPart& part : layer.parts) {
      pages.part_offsets.push_back(before);
      before += part_bytes(part, type_);
    }
    offset += layer_bytes(layer, type_);
  }
}

int64_t PagedKvCache::pages_needed(int64_t total_tokens, int64_t step_tokens) const {
  const int64_t all = pages_to_hold(total_tokens);
  if (!streaming_.on()) return all;
  // The window and the step may begin and end in the middle of a page.
  const int64_t seen = streaming_.window - 1 + step_tokens;
  return std::min(all, streaming_.sink_pages() + pages_for(seen) + 1);
}

int64_t PagedKvCache::free_pages(bool spilled) const {
  return spilled ? spill_.capacity() - spill_.in_use()
                 : capacity_pages() - booked_pages_ - prefixes_.held_pages();
}

int64_t PagedKvCache::pages_to_book(const KvSequence& sequence, int64_t tokens) const {
  const int64_t missing = std::max<int64_t>(
      pages_to_hold(sequence.length_ + tokens) - static_cast<int64_t>(sequence.pages_.size()), 0);
  return std::max<int64_t>(sequence.live_pages() + missing - sequence.booked_, 0);
}

bool PagedKvCache::place(KvSequence& sequence, int64_t total_tokens, int64_t step_tokens,
                         const KvPlacement& placement) {
  if (sequence.booked_ > 0 || sequence.states_.taken()) {
    fail(ErrorKind::internal, "a sequence was placed twice");
  }
  const int64_t pages = pages_needed(total_tokens, step_tokens);
  share_prefix(sequence, placement.tokens);
  const auto shared = static_cast<int64_t>(sequence.shared_.size());
  const int64_t spare = has_pages() ? placement.spare_pages : 0;
  const auto has_room = [&](int64_t needed, bool spilled) {
    return needed + spare <= free_pages(spilled);
  };
  if (!has_room(pages - shared, false) || !place_in(sequence, pages - shared, false)) {
    let_go_of_prefix(sequence);
    if (!has_room(pages, true) || !place_in(sequence, pages, true)) return false;
  }
  if (!sequence.shared_.empty()) {
    ++prefix_counters_.hits;
    prefix_counters_.tokens += sequence.length_;
  }
  if (sequence.number() == 0) number(sequence);
  return true;
}

bool PagedKvCache::place_in(KvSequence& sequence, int64_t pages, bool spilled) {
  if (states_.any() && !states_.take(sequence.states_, spilled)) return false;
  sequence.spilled_ = spilled;
  if (book(sequence, pages)) return true;
  sequence.spilled_ = false;
  states_.give_back(sequence.states_, spilled);
  return false;
}

bool PagedKvCache::book(KvSequence& sequence, int64_t pages) {
  if (sequence.spilled_) {
    const std::optional<std::vector<int32_t>> places = spill_.take(pages);
    if (!places) return false;
    sequence.spare_.insert(sequence.spare_.begin(), places->rbegin(), places->rend());
  } else {
    if (pages > free_pages(false)) return false;
    booked_pages_ += pages;
  }
  sequence.booked_ += pages;
  return true;
}

bool PagedKvCache::reserve(KvSequence& sequence, int64_t tokens) {
  const bool stateless = states_.any() && !sequence.states_.taken();
  if (stateless && !states_.take(sequence.states_, sequence.spilled_)) return false;
  const int64_t missing = std::max<int64_t>(
      pages_to_hold(sequence.length_ + tokens) - static_cast<int64_t>(sequence.pages_.size()), 0);
  sequence.booked_in_step_ = pages_to_book(sequence, tokens);
  if (!book(sequence, sequence.booked_in_step_)) {
    if (stateless) states_.give_back(sequence.states_, sequence.spilled_);
    return false;
  }
  for (int64_t i = 0; i < missing; ++i) sequence.pages_.push_back(next_page(sequence));
  sequence.reserved_ = tokens;
  return true;
}

// Takes one of the pages that are booked for the sequence.
int32_t PagedKvCache::next_page(KvSequence& sequence) {
  if (!sequence.spilled_) {
    if (memory_.in_use() == memory_.capacity()) {
      memory_.give_back(prefixes_.remove_least_recent());
    }
    return memory_.take();
  }
  const int32_t page = sequence.spare_.back();
  sequence.spare_.pop_back();
  return page;
}

void PagedKvCache::commit(KvSequence& sequence, int64_t tokens) {
  const bool part = tokens < sequence.reserved_;
  if (part && states_.any()) {
    fail(ErrorKind::internal, "{} of {} positions were to be committed, but states are of all",
         tokens, sequence.reserved_);
  }
  sequence.length_ += tokens;
  sequence.reserved_ = 0;
  if (part) {
    unbook(sequence, std::min(give_back_uncommitted(sequence), sequence.booked_in_step_));
  }
  if (states_.any()) sequence.states_.commit();
  if (streaming_.on() && has_pages()) give_back_unseen(sequence);
}

void PagedKvCache::undo(KvSequence& sequence) {
  if (abandoned_) return;
  give_back_uncommitted(sequence);
  sequence.reserved_ = 0;
}

// Gives pages back from the last on, so that the next reserve takes them in their order again;
// returns how many.
int64_t PagedKvCache::give_back_uncommitted(KvSequence& sequence) {
  int64_t pages = 0;
  for (; static_cast<int64_t>(sequence.pages_.size()) > pages_for(sequence.length_); ++pages) {
    give_back(sequence, sequence.pages_.back());
    sequence.pages_.pop_back();
  }
  return pages;
}

// Lets others book pages that the sequence has booked and does not hold.
void PagedKvCache::unbook(KvSequence& sequence, int64_t pages) {
  sequence.booked_ -= pages;
  if (!sequence.spilled_) {
    booked_pages_ -= pages;
    return;
  }
  const auto first = sequence.spare_.end() - pages;
  spill_.give_back({first, sequence.spare_.end()});
  sequence.spare_.erase(first, sequence.spare_.end());
}

// Makes a page available again: to this sequence where it is spilled, else to all.
void PagedKvCache::give_back(KvSequence& sequence, int32_t page) {
  if (sequence.spilled_) {
    sequence.spare_.push_back(page);
  } else {
    memory_.give_back(page);
  }
}

// Pages that neither the next token nor any after it can see.
void PagedKvCache::give_back_unseen(KvSequence& sequence) {
  const int64_t window_begin = sequence.length_ - streaming_.window + 1;
  const int64_t sink_pages = streaming_.sink_pages();
  for (int64_t page = sink_pages + sequence.given_back_; (page + 1) * kPageTokens <= window_begin;
       ++page) {
    int32_t& place = sequence.pages_[static_cast<size_t>(page)];
    give_back(sequence, place);
    place = KvSequence::kGivenBack;
    ++sequence.given_back_;
  }
}

void PagedKvCache::release(KvSequence& sequence) {
  if (abandoned_) return;
  std::vector<int32_t>& pages = sequence.pages_;
  std::erase(pages, KvSequence::kGivenBack);
  if (sequence.spilled_) {
    spill_.give_back(pages);
    spill_.give_back(sequence.spare_);
  } else {
    booked_pages_ -= sequence.booked_;
    pages.erase(pages.begin(), pages.begin() + std::ssize(sequence.shared_));
    for (const int32_t page : pages) memory_.give_back(page);
    let_go_of_prefix(sequence);
  }
  states_.give_back(sequence.states_, sequence.spilled_);
  sequence = KvSequence();
}

void PagedKvCache::vacate(KvSequence& sequence) {
  const int64_t number = sequence.number_;
  release(sequence);
  sequence.number_ = number;
}

KvView PagedKvCache::view(const KvSequence& sequence, LayerId layer, const KvStage* stage) const {
  KvView view;
  view.type_ = type_;
  view.kept_ = streaming_;
  const KvStage::Area* area = area_of(sequence, layer, stage);
  const std::vector<uint64_t>& offsets = layers_[static_cast<size_t>(layer.value)].part_offsets;
  const size_t pages = sequence.pages_.size();
  view.parts_ = offsets.size();
  view.addresses_.resize(offsets.size() * pages);
  for (size_t i = 0; i < pages && !offsets.empty(); ++i) {
    if (sequence.pages_[i] == KvSequence::kGivenBack) continue;
    std::byte* page = page_at(sequence, layer, i, area);
    for (size_t part = 0; part < offsets.size(); ++part) {
      view.addresses_[part * pages + i] = page + offsets[part];
    }
  }
  if (states_.bytes(layer) > 0) add_states(view, sequence, layer, area);
  return view;
}

// The area of a sequence in the stage; null where the sequence is in memory, or without a stage.
const KvStage::Area* PagedKvCache::area_of(const KvSequence& sequence, LayerId layer,
                                           const KvStage* stage) const {
  if (!sequence.spilled_ || !stage) return nullptr;
  if (stage->layer_ == layer) {
    for (const KvStage::Area& area : stage->areas_) {
      if (area.sequence == &sequence) return &area;
    }
  }
  fail(ErrorKind::internal, "layer {}: a spilled sequence is not in the stage", layer.value);
}

// The layer's share of a page, wherever it is now.
std::byte* PagedKvCache::page_at(const KvSequence& sequence, LayerId layer, size_t page,
                                 const KvStage::Area* area) const {
  const int32_t place = sequence.pages_[page];
  if (!sequence.spilled_) {
    return memory_.at(place) + layers_[static_cast<size_t>(layer.value)].offset;
  }
  if (area) return staged_page(*area, layer, page);
  std::byte* in_file = spill_.page(layer, place);
  if (in_file) return in_file;
  fail(ErrorKind::internal, "layer {}: a spilled sequence needs a stage", layer.value);
}

void PagedKvCache::add_states(KvView& view, const KvSequence& sequence, LayerId layer,
                              const KvStage::Area* area) const {
  const StateVersions& versions = sequence.states_;
  if (!versions.taken()) return;  // nothing was reserved yet
  std::byte* committed = nullptr;
  std::byte* next = nullptr;
  if (!sequence.spilled_) {
    committed = states_.in_memory(layer, versions.committed());
    next = states_.in_memory(layer, versions.next());
  } else if (area) {
    committed = area->states;
    next = area->states + states_.spilled_bytes(layer);
  } else {
    committed = states_.in_file(layer, versions.committed());
    next = states_.in_file(layer, versions.next());
    if (!next) {
      fail(ErrorKind::internal, "layer {}: a spilled sequence needs a stage", layer.value);
    }
  }
  const uint64_t bytes = states_.bytes(layer);
  if (versions.begun()) view.state_ = {committed, bytes};
  view.next_state_ = {next, bytes};
}

}  // namespace klotski
