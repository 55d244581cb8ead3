// The way of spilled pages and states into a stage and back.

#include <algorithm>

#include "base/error.h"
#include "kv/paged_cache.h"

namespace klotski {

uint64_t PagedKvCache::stage_bytes(std::span<KvSequence* const> sequences) const {
  uint64_t pages = 0;
  uint64_t states = 0;
  for (const KvSequence* sequence : sequences) {
    if (!sequence->spilled_) continue;
    pages += static_cast<uint64_t>(sequence->live_pages());
    states += 2;
  }
  uint64_t most = 0;
  for (int64_t i = 0; i < spill_.layers(); ++i) {
    const LayerId layer(i);
    most = std::max(most, pages * spill_.page_bytes(layer) + states * states_.spilled_bytes(layer));
  }
  return most;
}

std::byte* PagedKvCache::staged_page(const KvStage::Area& area, LayerId layer, size_t page) const {
  const auto index = static_cast<int64_t>(page);
  const int64_t before = index < streaming_.sink_pages() ? 0 : area.sequence->given_back_;
  return area.begin + static_cast<uint64_t>(index - before) * spill_.page_bytes(layer);
}

// Pages begin .. end - 1 of an area, as runs that are neighbours both in the file and in the stage.
void PagedKvCache::add_runs(std::vector<SpillPages::Run>& runs, const KvStage::Area& area,
                            LayerId layer, int64_t begin, int64_t end) const {
  if (spill_.page_bytes(layer) == 0) return;
  const std::vector<int32_t>& pages = area.sequence->pages_;
  const auto last = static_cast<size_t>(end);
  for (auto page = static_cast<size_t>(begin); page < last;) {
    const size_t first = page++;
    if (pages[first] == KvSequence::kGivenBack) continue;
    while (page < last && pages[page] == pages[page - 1] + 1) ++page;
    const uint64_t bytes = (page - first) * spill_.page_bytes(layer);
    runs.push_back({pages[first], std::span(staged_page(area, layer, first), bytes)});
  }
}

void PagedKvCache::load(KvStage& stage, std::span<KvSequence* const> sequences,
                        LayerId layer) const {
  std::vector<KvStage::Area> areas;
  uint64_t used = 0;
  for (KvSequence* sequence : sequences) {
    if (!sequence->spilled_) continue;
    if (sequence->lost_) {
      fail(ErrorKind::internal,
           "keys and values of a sequence were lost by a failed write; compute it anew");
    }
    std::byte* begin = stage.buffer_.data() + used;
    const uint64_t pages = static_cast<uint64_t>(sequence->live_pages()) * spill_.page_bytes(layer);
    areas.push_back({.sequence = sequence, .begin = begin, .states = begin + pages});
    used += pages + 2 * states_.spilled_bytes(layer);
  }
  if (used > stage.buffer_.size()) {
    fail(ErrorKind::internal, "a stage of {} bytes was asked to hold {}", stage.buffer_.size(),
         used);
  }
  stage.areas_.clear();  // the stage's former contents are overwritten after this
  std::vector<SpillPages::Run> runs;
  for (const KvStage::Area& area : areas) {
    add_runs(runs, area, layer, 0, pages_to_hold(area.sequence->length_));
  }
  spill_.read(layer, runs);
  load_states(areas, layer);
  stage.layer_ = layer;
  stage.areas_ = std::move(areas);
}

void PagedKvCache::load_states(std::span<const KvStage::Area> areas, LayerId layer) const {
  const uint64_t bytes = states_.spilled_bytes(layer);
  if (bytes == 0) return;
  std::vector<SpillPages::Run> runs;
  for (const KvStage::Area& area : areas) {
    const StateVersions& versions = area.sequence->states_;
    if (versions.begun()) runs.push_back({versions.committed(), {area.states, bytes}});
  }
  states_.read(layer, runs);
}

// A failed write loses nothing: the committed states are in other places.
void PagedKvCache::store_states(const KvStage& stage) {
  const uint64_t bytes = states_.spilled_bytes(stage.layer_);
  if (bytes == 0) return;
  std::vector<SpillPages::Run> runs;
  for (const KvStage::Area& area : stage.areas_) {
    runs.push_back({area.sequence->states_.next(), {area.states + bytes, bytes}});
  }
  states_.write(stage.layer_, runs);
}

// Writes a stage back. Where one of many writes fails, no other is known to have been made either.
void PagedKvCache::store(const KvStage& stage) {
  std::vector<SpillPages::Run> runs;
  for (const KvStage::Area& area : stage.areas_) {
    const KvSequence& sequence = *area.sequence;
    add_runs(runs, area, stage.layer_, sequence.length_ / kPageTokens,
             pages_to_hold(sequence.length_ + sequence.reserved_));
  }
  try {
    spill_.write(stage.layer_, runs);
  } catch (...) {
    for (const KvStage::Area& area : stage.areas_) {
      area.sequence->lost_ = area.sequence->length_ % kPageTokens != 0;
    }
    throw;
  }
  if (!stage.areas_.empty()) store_states(stage);
}

}  // namespace klotski
