#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kv/sequence.h"
#include "kv/spill_pages.h"
#include "kv/stage.h"
#include "model/description.h"

namespace klotski {

// What keys and values are kept as, where products are computed in this precision.
inline DType kv_type(Precision precision) {
  return precision == Precision::bf16 ? DType::BF16 : DType::F32;
}

struct KvLimits {
  DType type;  // of every key and value: F32, or BF16 in half the bytes
  uint64_t memory_bytes = 0;
  // A device's memory of that size, for operations that work there; null: the program's own.
  std::byte* memory = nullptr;
  uint64_t spill_bytes = 0;  // below it, for the sequences that memory has no room for
  SpillPages::MakeStore spill_store = {};
  StreamingWindow streaming = {};
};

// Keys and values of many sequences in pages of a fixed number of positions, float32 or rounded to
// bf16, within byte limits: a sequence's pages are all in memory or all in a file.
//
// A step of a sequence:
//   reserve   makes room for its new positions; nothing that was committed changes from here on
//   for every layer: load (if any sequence is spilled), pages + attention, store
//   commit    makes the new positions part of the sequence
// A step that fails before commit is undone by not committing: the next reserve takes its place.
// Only pages with new positions are stored; the one that also holds committed positions gets those
// again as they were. If the disk fails in the middle of that write they are lost, and the sequence
// is refused by load from then on: release it and compute it anew.
//
// load, pages and store may run on several threads for different sequences and stages; not
// beside place, reserve, commit or release.
class PagedKvCache {
 public:
  static constexpr int64_t kPageTokens = kKvPageTokens;
  static constexpr uint64_t kLineBytes = 64;  // divides a layer's [keys | values] of any width

  // Memory is taken page by page as sequences grow, the space below at once.
  PagedKvCache(const ModelDescription& model, const KvLimits& limits);

  static uint64_t page_bytes(const ModelDescription& model, DType type);
  // Of one page [keys | values] of each layer, in the file and in a stage.
  static std::vector<uint64_t> spilled_page_bytes(const ModelDescription& model, DType type);
  uint64_t page_bytes() const { return page_bytes_; }
  int64_t pages_in_use() const { return pages_in_use_; }  // of memory
  int64_t capacity_pages() const { return capacity_pages_; }
  int64_t spilled_pages() const { return spill_.in_use(); }
  int64_t spill_capacity_pages() const { return spill_.capacity(); }
  static int64_t pages_for(int64_t tokens) { return kv_pages_for(tokens); }

  // The most pages a sequence of total_tokens holds at any time if it gains at most step_tokens in
  // a step.
  int64_t pages_needed(int64_t total_tokens, int64_t step_tokens) const;

  // Decides where a new sequence lives and books all pages it may come to need: in memory if there
  // is room, else in the file, else false. Without it a sequence lives in memory and books what it
  // reserves.
  [[nodiscard]] bool place(KvSequence& sequence, int64_t total_tokens, int64_t step_tokens);

  // Makes room for `tokens` positions beyond the committed ones; false if the limit forbids it,
  // which cannot happen within what was booked.
  [[nodiscard]] bool reserve(KvSequence& sequence, int64_t tokens);
  void commit(KvSequence& sequence, int64_t tokens);
  void release(KvSequence& sequence);

  // Bytes of a stage for these sequences, with what they have reserved: enough for any layer.
  uint64_t stage_bytes(std::span<KvSequence* const> sequences) const;

  // Brings the committed pages of the spilled ones among `sequences` into the stage.
  void load(KvStage& stage, std::span<KvSequence* const> sequences, LayerId layer) const;

  // Writes the stage's pages with new positions back to the file.
  void store(const KvStage& stage);

  // The layer's pages of a sequence, reserved ones included: in memory, in the stage that was
  // loaded for this layer or, without a stage, in their place below where that is memory too. Keys
  // begin at a multiple of kLineBytes, and values too, but for BF16 of an odd width: those at half
  // of one.
  KvView pages(const KvSequence& sequence, LayerId layer, const KvStage* stage = nullptr) const;

 private:
  [[nodiscard]] bool book(KvSequence& sequence, int64_t pages);
  int32_t next_page(KvSequence& sequence);
  void give_back_unseen(KvSequence& sequence);
  uint64_t row_bytes(LayerId layer) const;
  std::byte* page_at(const KvSequence& sequence, LayerId layer, size_t page,
                     const KvStage* stage) const;
  std::byte* staged_page(const KvStage::Area& area, LayerId layer, size_t page) const;
  void add_runs(std::vector<SpillPages::Run>& runs, const KvStage::Area& area, LayerId layer,
                int64_t begin, int64_t end) const;

  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };

  DType type_;
  StreamingWindow streaming_;
  std::vector<uint64_t> layer_offset_;  // bytes from a page's start to the layer's keys
  std::vector<int64_t> layer_width_;    // kv_heads * head_dim
  uint64_t page_bytes_ = 0;
  int64_t capacity_pages_ = 0;
  int64_t booked_pages_ = 0;
  int64_t pages_in_use_ = 0;
  std::byte* memory_ = nullptr;                   // of a device: page after page
  std::vector<std::unique_ptr<Line[]>> storage_;  // or pages in memory: every layer [keys | values]
  int32_t pages_made_ = 0;
  std::vector<int32_t> free_;
  SpillPages spill_;
};

}  // namespace klotski
