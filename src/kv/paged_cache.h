#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "model/description.h"

namespace klotski {

// The pages and the length of one sequence. Owned by whoever runs the sequence; only the cache
// changes it.
class KvSequence {
 public:
  int64_t length() const { return length_; }  // committed positions
  bool spilled() const { return false; }

 private:
  friend class PagedKvCache;
  std::vector<int32_t> pages_;
  int64_t length_ = 0;
  int64_t promised_ = 0;
};

struct KvLimits {
  uint64_t memory_bytes = 0;
  uint64_t spill_bytes = 0;
  std::filesystem::path spill_folder;
  int64_t stages = 0;
};

class KvStage {};

class KvPageList {
 public:
  KvPages view() const { return {keys, values, page_tokens}; }
  std::vector<const float*> keys;
  std::vector<const float*> values;
  int64_t page_tokens = 0;
};

// Keys and values of many sequences in pages of a fixed number of positions, float32, within a byte
// limit. A step reserves room, writes every layer, then commits; a step that fails half-way leaves
// the committed positions as they were.
class PagedKvCache {
 public:
  static constexpr int64_t kPageTokens = 16;

  // Memory is taken page by page as sequences grow, never above limit_bytes.
  PagedKvCache(const ModelDescription& model, const KvLimits& limits);
  static uint64_t bytes_for(const ModelDescription& model, int64_t tokens) {
    return static_cast<uint64_t>(pages_for(tokens)) * page_bytes(model);
  }
  static uint64_t stage_bytes(const ModelDescription&, int64_t, int64_t) { return 0; }
  bool can_ever_hold(int64_t tokens) const { return pages_for(tokens) <= capacity_pages_; }
  [[nodiscard]] bool place(KvSequence& sequence, int64_t tokens) {
    if (promised_ + pages_for(tokens) > capacity_pages_) return false;
    sequence.promised_ = pages_for(tokens);
    promised_ += sequence.promised_;
    return true;
  }
  KvStage& stage(int32_t) { return stage_; }
  void load(KvStage&, std::span<KvSequence* const>, LayerId) {}
  void store(KvStage&, std::span<KvSequence* const>, LayerId) {}

  static uint64_t page_bytes(const ModelDescription& model);
  uint64_t page_bytes() const { return page_floats_ * sizeof(float); }
  int64_t pages_in_use() const { return pages_in_use_; }
  int64_t capacity_pages() const { return capacity_pages_; }
  static int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  // Makes room for `tokens` positions beyond the committed ones; false if the limit forbids it.
  [[nodiscard]] bool reserve(KvSequence& sequence, int64_t tokens);

  // Stores one layer's keys and values of consecutive reserved positions from `first_position` on.
  void write(const KvSequence& sequence, LayerId layer, int64_t first_position, ConstRows keys,
             ConstRows values, KvStage*);

  // The layer's pages of a sequence, reserved ones included. Valid until the next call.
  KvPageList pages(const KvSequence& sequence, LayerId layer, const KvStage*) const;

  void commit(KvSequence& sequence, int64_t tokens) { sequence.length_ += tokens; }
  void release(KvSequence& sequence);

 private:
  float* keys_at(int32_t page, LayerId layer) const;
  float* values_at(int32_t page, LayerId layer) const;

  std::vector<uint64_t> layer_offset_;  // floats from a page's start to the layer's keys
  std::vector<int64_t> layer_width_;    // kv_heads * head_dim
  uint64_t page_floats_ = 0;
  int64_t capacity_pages_ = 0;
  int64_t pages_in_use_ = 0;
  std::vector<std::unique_ptr<float[]>> storage_;
  std::vector<int32_t> free_;
  int64_t promised_ = 0;
  KvStage stage_;
};

}  // namespace klotski
