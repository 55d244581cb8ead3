#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "memory/spill_store.h"

namespace klotski {

// Pages in a slower memory than the one that is computed in: in a file, say. Each layer has a
// region, in which each place holds one page, rounded up to the size that direct transfers ask for.
// Layers whose pages have no bytes take none. The pages of a sequence take neighbouring places as
// far as there are any, so that many are read at once.
class SpillPages {
 public:
  // Makes a store of `bytes` bytes.
  using MakeStore = std::function<std::unique_ptr<SpillStore>(uint64_t bytes)>;
  // Makes a store for as many places as fit in limit_bytes, all layers together, at once. No places
  // where the pages of no layer have bytes.
  SpillPages(uint64_t limit_bytes, std::span<const uint64_t> page_bytes_of_layers,
             const MakeStore& make);

  int64_t capacity() const { return static_cast<int64_t>(taken_.size()); }
  int64_t in_use() const { return in_use_; }

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  // Bytes of one page of a layer, in the file and in a stage.
  uint64_t page_bytes(LayerId layer) const { return layers_[index(layer)].page_bytes; }

  // `count` places in ascending order, or nothing where fewer are free.
  [[nodiscard]] std::optional<std::vector<int32_t>> take(int64_t count);
  void give_back(std::span<const int32_t> places);

  // Neighbouring pages of a layer, in places from `first` on and in memory.
  struct Run {
    int32_t first = 0;
    std::span<std::byte> pages;
  };
  // Reads or writes all runs, in any order. Any thread may call it, for places of different
  // sequences.
  void read(LayerId layer, std::span<const Run> runs) const;
  void write(LayerId layer, std::span<const Run> runs);
  // The page itself, where the program may use it in its place; else null.
  std::byte* page(LayerId layer, int32_t place) const;

 private:
  struct Region {
    uint64_t offset = 0;
    uint64_t page_bytes = 0;
  };

  static size_t index(LayerId layer) { return static_cast<size_t>(layer.value); }
  uint64_t offset_of(LayerId layer, int32_t place) const;

  std::vector<Region> layers_;
  std::vector<bool> taken_;  // whether a place is taken
  int64_t in_use_ = 0;
  std::unique_ptr<SpillStore> store_;
};

}  // namespace klotski
