#pragma once

#include <cstdint>
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

 private:
  friend class PagedKvCache;
  std::vector<int32_t> pages_;
  int64_t length_ = 0;
};

// Keys and values of many sequences in pages of a fixed number of positions, float32, within a byte
// limit. A step reserves room, writes every layer, then commits; a step that fails half-way leaves
// the committed positions as they were.
class PagedKvCache {
 public:
  static constexpr int64_t kPageTokens = 16;

  // Memory is taken page by page as sequences grow, never above limit_bytes.
  PagedKvCache(const ModelDescription& model, uint64_t limit_bytes);

  static uint64_t page_bytes(const ModelDescription& model);
  uint64_t page_bytes() const { return page_floats_ * sizeof(float); }
  int64_t pages_in_use() const { return pages_in_use_; }
  int64_t capacity_pages() const { return capacity_pages_; }
  static int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  // Makes room for `tokens` positions beyond the committed ones; false if the limit forbids it.
  [[nodiscard]] bool reserve(KvSequence& sequence, int64_t tokens);

  // Stores one layer's keys and values of consecutive reserved positions from `first_position` on.
  void write(const KvSequence& sequence, LayerId layer, int64_t first_position, ConstRows keys,
             ConstRows values);

  // The layer's pages of a sequence, reserved ones included. Valid until the next call.
  KvPages pages(const KvSequence& sequence, LayerId layer);

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
  std::vector<const float*> key_pages_;  // what pages() handed out last
  std::vector<const float*> value_pages_;
};

}  // namespace klotski
