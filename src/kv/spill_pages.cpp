#include "kv/spill_pages.h"

#include <algorithm>

#include "memory/alignment.h"

namespace klotski {

SpillPages::SpillPages(uint64_t limit_bytes, std::span<const uint64_t> page_bytes_of_layers,
                       const MakeStore& make) {
  uint64_t place_bytes = 0;
  for (const uint64_t bytes : page_bytes_of_layers) {
    layers_.push_back({.offset = 0, .page_bytes = round_up_to_alignment(bytes)});
    place_bytes += layers_.back().page_bytes;
  }
  const uint64_t places =
      place_bytes == 0 ? 0 : std::min<uint64_t>(limit_bytes / place_bytes, INT32_MAX);
  taken_.assign(places, false);
  uint64_t offset = 0;
  for (Region& layer : layers_) {
    layer.offset = offset;
    offset += places * layer.page_bytes;
  }
  if (places > 0) store_ = make(offset);
}

std::optional<std::vector<int32_t>> SpillPages::take(int64_t count) {
  if (count > capacity() - in_use_) return std::nullopt;
  // The first gap that is long enough, or else any free places.
  const auto gap = std::search_n(taken_.begin(), taken_.end(), static_cast<size_t>(count), false);
  auto place = gap == taken_.end() ? taken_.begin() : gap;
  std::vector<int32_t> places;
  for (; static_cast<int64_t>(places.size()) < count; ++place) {
    if (*place) continue;
    *place = true;
    places.push_back(static_cast<int32_t>(place - taken_.begin()));
  }
  in_use_ += count;
  return places;
}

void SpillPages::give_back(std::span<const int32_t> places) {
  for (const int32_t place : places) taken_[static_cast<size_t>(place)] = false;
  in_use_ -= static_cast<int64_t>(places.size());
}

void SpillPages::read(LayerId layer, std::span<const Run> runs) const {
  std::vector<SpillRead> reads;
  for (const Run& run : runs) reads.push_back({offset_of(layer, run.first), run.pages});
  if (!reads.empty()) store_->read(reads);
}

void SpillPages::write(LayerId layer, std::span<const Run> runs) {
  std::vector<SpillWrite> writes;
  for (const Run& run : runs) writes.push_back({offset_of(layer, run.first), run.pages});
  if (!writes.empty()) store_->write(writes);
}

std::byte* SpillPages::page(LayerId layer, int32_t place) const {
  std::byte* memory = store_ ? store_->memory() : nullptr;
  return memory ? memory + offset_of(layer, place) : nullptr;
}

uint64_t SpillPages::offset_of(LayerId layer, int32_t place) const {
  const Region& region = layers_[index(layer)];
  return region.offset + static_cast<uint64_t>(place) * region.page_bytes;
}

}  // namespace klotski
