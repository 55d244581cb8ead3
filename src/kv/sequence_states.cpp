#include "kv/sequence_states.h"

#include <optional>

#include "memory/alignment.h"

namespace klotski {

namespace {

std::vector<uint64_t> state_bytes_of(const CacheLayouts& layouts) {
  std::vector<uint64_t> bytes;
  for (const CacheLayout& layer : layouts.layers()) bytes.push_back(layer.state_bytes);
  return bytes;
}

}  // namespace

uint64_t SequenceStates::sequence_bytes(const CacheLayouts& layouts) {
  uint64_t version = 0;
  for (const CacheLayout& layer : layouts.layers()) {
    version += MemoryPages::whole_lines(layer.state_bytes);
  }
  return 2 * version;
}

std::vector<uint64_t> SequenceStates::spilled_version_bytes(const CacheLayouts& layouts) {
  std::vector<uint64_t> bytes = state_bytes_of(layouts);
  for (uint64_t& of_layer : bytes) of_layer = round_up_to_alignment(of_layer);
  return bytes;
}

uint64_t SequenceStates::spilled_sequence_bytes(const CacheLayouts& layouts) {
  uint64_t version = 0;
  for (const uint64_t bytes : spilled_version_bytes(layouts)) version += bytes;
  return 2 * version;
}

SequenceStates::SequenceStates(const CacheLayouts& layouts, const StateLimits& limits,
                               const SpillPages::MakeStore& make)
    : bytes_(state_bytes_of(layouts)),
      memory_(sequence_bytes(layouts) / 2, limits.memory_bytes, limits.memory),
      spill_(limits.spill_bytes, bytes_, make) {
  uint64_t offset = 0;
  for (const uint64_t bytes : bytes_) {
    offsets_.push_back(offset);
    offset += MemoryPages::whole_lines(bytes);
  }
}

bool SequenceStates::take(StateVersions& versions, bool spilled) {
  if (spilled) {
    const std::optional<std::vector<int32_t>> places = spill_.take(2);
    if (!places) return false;
    versions.places_ = {(*places)[0], (*places)[1]};
    return true;
  }
  if (memory_.capacity() - memory_.in_use() < 2) return false;
  for (int32_t& place : versions.places_) place = memory_.take();
  return true;
}

void SequenceStates::give_back(StateVersions& versions, bool spilled) {
  if (!versions.taken()) return;
  if (spilled) {
    spill_.give_back(versions.places_);
  } else {
    for (const int32_t place : versions.places_) memory_.give_back(place);
  }
  versions = StateVersions();
}

}  // namespace klotski
