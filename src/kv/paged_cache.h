#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kv/memory_pages.h"
#include "kv/prefix_pages.h"
#include "kv/sequence.h"
#include "kv/sequence_states.h"
#include "kv/spill_pages.h"
#include "kv/stage.h"
#include "model/cache_layout.h"

namespace klotski {

// The type of a cache's numbers where products are computed in this precision.
inline DType kv_type(Precision precision) {
  return precision == Precision::bf16 ? DType::BF16 : DType::F32;
}

struct KvLimits {
  DType type;  // type of every number of a page: F32, or BF16 in half the bytes
  uint64_t memory_bytes = 0;
  // A device's memory of that size, for operations that work there; null: the program's own.
  std::byte* memory = nullptr;
  uint64_t spill_bytes = 0;  // bytes of a file, for sequences that memory has no room for
  SpillPages::MakeStore spill_store = {};
  StreamingWindow streaming = {};
  StateLimits states = {};  // for layers that keep a state of fixed size
};

// Conditions of a sequence's place in the cache.
struct KvPlacement {
  // Tokens whose full pages are looked for among those of other sequences, all but the last
  // token's: the sequence then begins with the positions that were found. Empty: it begins with
  // none.
  std::span<const TokenId> tokens{};
  int64_t spare_pages = 0;  // pages that must stay free beside those of the sequence
};

// Prefixes that sequences found in the cache so far.
struct PrefixCounters {
  int64_t hits = 0;    // sequences that found at least a page
  int64_t tokens = 0;  // positions that were not computed anew
};

// The data that attention keeps of many sequences, by the layouts of the layers: numbers of every
// position in pages of a fixed number of positions, float32 or rounded to bf16, and states of fixed
// size, within byte limits. All of a sequence is in memory or all of it in a file.
//
// A step of a sequence (KvTransaction makes one of several):
//   reserve   makes room for its new positions; nothing that was committed changes from here on
//   for every layer: load (if any sequence is spilled), view + attention, store
//   commit    makes the new positions, or the first of them, part of the sequence and the next
//             states the committed ones, or undo gives their pages back
// Only pages with new positions are stored; committed positions of such a page are written again
// as they were. If the disk fails in the middle of that write they are lost, and the sequence is
// refused by load from then on: release it and compute it anew.
//
// Sequences in memory whose layers keep nothing but parts of every position can share full pages:
// publish() makes those of a sequence known, place() looks for them. Pages that no sequence holds
// are kept until another one needs their memory.
//
// load, view and store may run on several threads for different sequences and stages; not while
// place, reserve, commit, undo or release runs.
class PagedKvCache {
 public:
  static constexpr int64_t kPageTokens = kKvPageTokens;

  // Memory is taken page by page as sequences grow, the space in the file at once.
  PagedKvCache(const CacheLayouts& layouts, const KvLimits& limits);

  // Bytes of a page in memory: every layer's parts one after the other, in whole lines.
  static uint64_t page_bytes(const CacheLayouts& layouts, DType type);
  // Bytes of one page of each layer, in the file and in a stage.
  static std::vector<uint64_t> spilled_page_bytes(const CacheLayouts& layouts, DType type);
  uint64_t page_bytes() const { return memory_.page_bytes(); }
  int64_t pages_in_use() const { return memory_.in_use(); }  // pages of memory, kept ones too
  int64_t capacity_pages() const { return memory_.capacity(); }
  int64_t spilled_pages() const { return spill_.in_use(); }
  int64_t spill_capacity_pages() const { return spill_.capacity(); }
  static int64_t pages_for(int64_t tokens) { return kv_pages_for(tokens); }

  // The most pages a sequence of total_tokens holds at any time if it gains at most step_tokens in
  // a step; none where no layer keeps anything of a position.
  int64_t pages_needed(int64_t total_tokens, int64_t step_tokens) const;

  // Pages that can still be booked, in memory or in the file.
  int64_t free_pages(bool spilled) const;
  // Pages that reserve() would book for this many new tokens.
  int64_t pages_to_book(const KvSequence& sequence, int64_t tokens) const;

  // Whether all that is kept of a sequence is pages, and all of them stay.
  bool can_share_prefixes() const { return has_pages() && !states_.any() && !streaming_.on(); }
  const PrefixCounters& prefix_counters() const { return prefix_counters_; }
  int64_t shared_pages() const { return prefixes_.held_pages() + prefixes_.idle_pages(); }

  // Numbers a new sequence, which may be placed after later ones; place() numbers the others.
  void number(KvSequence& sequence) { sequence.number_ = ++numbered_; }

  // Decides where a new sequence lives, books all pages it may come to need and takes its states:
  // in memory if there is room, else in the file, else false. Without place(), a sequence lives in
  // memory and books the pages that it reserves.
  [[nodiscard]] bool place(KvSequence& sequence, int64_t total_tokens, int64_t step_tokens,
                           const KvPlacement& placement = {});
  // Makes the full pages of a sequence known to others, `tokens` being its tokens: at least those
  // of its committed positions. Where such pages are known already, the sequence uses them and
  // gives its own back. Spilled sequences share nothing.
  void publish(KvSequence& sequence, std::span<const TokenId> tokens);

  // Makes room for `tokens` positions beyond the committed ones; false if the limit forbids it,
  // which cannot happen within the booked pages.
  [[nodiscard]] bool reserve(KvSequence& sequence, int64_t tokens);
  // Where fewer tokens than were reserved are committed, the others are taken back, with the pages
  // that were booked for them alone; not where states are kept, which are those of the last
  // reserved position.
  void commit(KvSequence& sequence, int64_t tokens);
  // Takes back the positions reserved since the last commit. Pages that reserve() booked stay
  // booked.
  void undo(KvSequence& sequence);
  void release(KvSequence& sequence);
  // Lets all sequences be as they are from now on: undo() and release() do nothing. For a thread
  // that may never return from one of them.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  // Releases a sequence that keeps its number, to be placed and computed anew.
  void vacate(KvSequence& sequence);

  // Bytes of a stage for these sequences, with their reserved pages: enough for any layer.
  uint64_t stage_bytes(std::span<KvSequence* const> sequences) const;

  // Brings the committed pages and states of the spilled ones among `sequences` into the stage.
  void load(KvStage& stage, std::span<KvSequence* const> sequences, LayerId layer) const;

  // Writes the stage's pages with new positions and its next states back to the file.
  void store(const KvStage& stage);

  // The layer's data of a sequence, reserved pages included: in memory, in the stage that was
  // loaded for this layer or, without a stage, in the spill store where that is memory too. The
  // first part begins at a multiple of MemoryPages::kLineBytes, and so do the others, but parts
  // that follow BF16 parts of odd width begin at half of a line.
  KvView view(const KvSequence& sequence, LayerId layer, const KvStage* stage = nullptr) const;

 private:
  // Offsets within the layer's share of a page.
  struct LayerPages {
    uint64_t offset = 0;                 // bytes from a page's start in memory
    std::vector<uint64_t> part_offsets;  // bytes from the layer's share, for each part
  };

  int64_t pages_to_hold(int64_t tokens) const { return has_pages() ? pages_for(tokens) : 0; }
  bool has_pages() const { return memory_.page_bytes() > 0; }
  [[nodiscard]] bool place_in(KvSequence& sequence, int64_t pages, bool spilled);
  void share_prefix(KvSequence& sequence, std::span<const TokenId> tokens);
  void let_go_of_prefix(KvSequence& sequence);
  [[nodiscard]] bool book(KvSequence& sequence, int64_t pages);
  int32_t next_page(KvSequence& sequence);
  void give_back(KvSequence& sequence, int32_t page);
  int64_t give_back_uncommitted(KvSequence& sequence);
  void unbook(KvSequence& sequence, int64_t pages);
  void give_back_unseen(KvSequence& sequence);
  const KvStage::Area* area_of(const KvSequence& sequence, LayerId layer,
                               const KvStage* stage) const;
  std::byte* page_at(const KvSequence& sequence, LayerId layer, size_t page,
                     const KvStage::Area* area) const;
  void add_states(KvView& view, const KvSequence& sequence, LayerId layer,
                  const KvStage::Area* area) const;
  std::byte* staged_page(const KvStage::Area& area, LayerId layer, size_t page) const;
  void add_runs(std::vector<SpillPages::Run>& runs, const KvStage::Area& area, LayerId layer,
                int64_t begin, int64_t end) const;
  void load_states(std::span<const KvStage::Area> areas, LayerId layer) const;
  void store_states(const KvStage& stage);

  DType type_;
  StreamingWindow streaming_;
  std::vector<LayerPages> layers_;
  int64_t booked_pages_ = 0;
  int64_t numbered_ = 0;  // sequences so far
  bool abandoned_ = false;
  MemoryPages memory_;
  SpillPages spill_;
  SequenceStates states_;
  PrefixPages prefixes_;
  PrefixCounters prefix_counters_;
};

}  // namespace klotski
