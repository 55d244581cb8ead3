#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/memory_pages.h"
#include "kv/spill_pages.h"
#include "model/cache_layout.h"

namespace klotski {

// Bytes for the states of sequences, which are not counted as pages.
struct StateLimits {
  uint64_t memory_bytes = 0;
  std::byte* memory = nullptr;  // a device's memory of memory_bytes; null: the program's own
  uint64_t spill_bytes = 0;     // bytes of a file, for sequences that memory has no room for
};

// The two versions of a sequence's states: the committed one, and the one that the step at hand
// writes. A step that is not committed leaves the committed version as it was.
class StateVersions {
 public:
  bool taken() const { return places_[0] >= 0; }
  bool begun() const { return begun_; }  // at least one step was committed
  int32_t committed() const { return places_[committed_]; }
  int32_t next() const { return places_[1 - committed_]; }
  void commit() {
    committed_ = 1 - committed_;
    begun_ = true;
  }

 private:
  friend class SequenceStates;
  std::array<int32_t, 2> places_ = {-1, -1};
  size_t committed_ = 0;
  bool begun_ = false;
};

// States of fixed size of many sequences, one for each layer whose layout has one; in memory, or in
// a file from where they pass through stages. A place holds one version of all layers' states. The
// meaning of a state is unknown here: a kind of attention reads one version and writes the other.
class SequenceStates {
 public:
  SequenceStates(const CacheLayouts& layouts, const StateLimits& limits,
                 const SpillPages::MakeStore& make);

  bool any() const { return memory_.page_bytes() > 0; }  // layers with a state
  uint64_t bytes(LayerId layer) const { return bytes_[index(layer)]; }
  // Bytes of one version of a layer's state in the file and in a stage.
  uint64_t spilled_bytes(LayerId layer) const { return spill_.page_bytes(layer); }

  // Takes both versions of a new sequence's states; false where there is no room for them.
  [[nodiscard]] bool take(StateVersions& versions, bool spilled);
  void give_back(StateVersions& versions, bool spilled);

  // A layer's state in a place of memory.
  std::byte* in_memory(LayerId layer, int32_t place) const {
    return memory_.at(place) + offsets_[index(layer)];
  }
  // A layer's state in a place of the file, where that is memory too; else null.
  std::byte* in_file(LayerId layer, int32_t place) const { return spill_.page(layer, place); }
  void read(LayerId layer, std::span<const SpillPages::Run> runs) const {
    spill_.read(layer, runs);
  }
  void write(LayerId layer, std::span<const SpillPages::Run> runs) { spill_.write(layer, runs); }

  // Bytes that both versions of a sequence's states take in memory.
  static uint64_t sequence_bytes(const CacheLayouts& layouts);
  // Bytes of one version of each layer's state, in the file and in a stage.
  static std::vector<uint64_t> spilled_version_bytes(const CacheLayouts& layouts);
  // Bytes of both versions of all layers' states in the file.
  static uint64_t spilled_sequence_bytes(const CacheLayouts& layouts);

 private:
  static size_t index(LayerId layer) { return static_cast<size_t>(layer.value); }

  std::vector<uint64_t> bytes_;    // bytes by layer
  std::vector<uint64_t> offsets_;  // by layer: bytes from the start of a place in memory
  MemoryPages memory_;
  SpillPages spill_;
};

}  // namespace klotski
