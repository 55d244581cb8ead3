#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/sequence.h"

namespace klotski {

// Memory for one layer's data of a micro-batch's spilled sequences while their attention is
// computed: filled by PagedKvCache::load, written back by PagedKvCache::store.
class KvStage {
 public:
  // The buffer begins at a multiple of kDirectAlignment and outlives the stage; its size is
  // PagedKvCache::stage_bytes of the largest micro-batch it has to serve.
  explicit KvStage(std::span<std::byte> buffer) : buffer_(buffer) {}

 private:
  friend class PagedKvCache;

  // The layer's cache of one sequence: its pages one after the other, without those given back, and
  // then its committed and its next state.
  struct Area {
    KvSequence* sequence;
    std::byte* begin;
    std::byte* states;
  };

  std::span<std::byte> buffer_;
  LayerId layer_{-1};
  std::vector<Area> areas_;
};

}  // namespace klotski
