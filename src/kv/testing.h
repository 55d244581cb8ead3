#pragma once

// A small model and recognisable numbers for the tests of this folder.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kv/paged_cache.h"
#include "memory/alignment.h"

namespace klotski::testing {

inline ModelDescription two_layers() {
  ModelDescription model;
  for (const int64_t kv_heads : {1, 2}) {
    Layer layer;
    layer.attention.query_heads = 2;
    layer.attention.kv_heads = kv_heads;
    layer.attention.head_dim = 3;
    model.layers.push_back(layer);
  }
  return model;
}

// Bytes of a page of two_layers() in the file: each layer's page is rounded up.
inline constexpr uint64_t kSpillPageBytes = 2 * kDirectAlignment;

// Memory for a stage.
class StageBuffer {
 public:
  explicit StageBuffer(uint64_t bytes)
      : bytes_(round_up_to_alignment(bytes + 1)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes_))) {
    std::memset(data_, 0xFF, bytes_);  // NaN: what was never loaded or written is noticed
  }
  ~StageBuffer() { std::free(data_); }
  StageBuffer(const StageBuffer&) = delete;
  StageBuffer& operator=(const StageBuffer&) = delete;
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  uint64_t bytes_;
  std::byte* data_;
};

// The number in every element of a position's key, for positions below 500; its value holds the
// negative.
inline float mark(int64_t sequence, int64_t position, LayerId layer) {
  return static_cast<float>(sequence * 1000 + position * 2 + layer.value + 1);
}

inline void write_marks(PagedKvCache& cache, const ModelDescription& model, int64_t number,
                        const KvSequence& sequence, LayerId layer, int64_t tokens,
                        const KvStage* stage) {
  const int64_t width = model.layer(layer).attention.kv_width();
  std::vector<float> keys;
  for (int64_t i = 0; i < tokens; ++i) {
    keys.insert(keys.end(), static_cast<size_t>(width), mark(number, sequence.length() + i, layer));
  }
  std::vector<float> values = keys;
  for (float& value : values) value = -value;
  cache.write(sequence, layer, sequence.length(), {keys.data(), tokens, width},
              {values.data(), tokens, width}, stage);
}

inline float cached_value(const std::byte* page, int64_t at) {
  return reinterpret_cast<const float*>(page)[at];
}

// Whether positions 0 .. length - 1 hold their marks, as far as `page_kept` says.
template <typename PageKept>
bool holds_marks(const KvPages& pages, const ModelDescription& model, int64_t number,
                 int64_t length, LayerId layer, const PageKept& page_kept) {
  const int64_t width = model.layer(layer).attention.kv_width();
  for (int64_t p = 0; p < length; ++p) {
    const auto page = static_cast<size_t>(p / kKvPageTokens);
    if (!page_kept(static_cast<int64_t>(page))) {
      if (pages.keys[page] != nullptr || pages.values[page] != nullptr) return false;
      continue;
    }
    if (pages.keys[page] == nullptr || pages.values[page] == nullptr) return false;
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at = p % kKvPageTokens * width + c;
      if (cached_value(pages.keys[page], at) != mark(number, p, layer)) return false;
      if (cached_value(pages.values[page], at) != -mark(number, p, layer)) return false;
    }
  }
  return true;
}

}  // namespace klotski::testing
