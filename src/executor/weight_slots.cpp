#include "executor/weight_slots.h"

#include <algorithm>
#include <cstring>

namespace klotski {

namespace {

std::vector<DirectFile> open_shards(const Checkpoint& checkpoint) {
  std::vector<DirectFile> files;
  for (size_t shard = 0; shard < checkpoint.shard_count(); ++shard) {
    files.emplace_back(checkpoint.file(static_cast<uint32_t>(shard)));
  }
  return files;
}

// Gate and up of an expert are multiplied by the same rows: of different types they are multiplied
// as float32, whatever the one of them could be.
bool may_be_arranged(const std::vector<PlacedTensor>& unit, const PlacedTensor& tensor) {
  return only_multiplied(tensor.role) &&
         std::none_of(unit.begin(), unit.end(), [&](const PlacedTensor& other) {
           return other.role == gated_partner(tensor.role) && other.dtype != tensor.dtype;
         });
}

}  // namespace

WeightSlots::WeightSlots(const Checkpoint& checkpoint, const UnitLayouts& layouts,
                         const Policy& policy, Tier& compute_tier, const Ops& ops,
                         const DiskReaderOptions& options)
    : layouts_(layouts),
      files_(open_shards(checkpoint)),
      ops_(ops),
      precision_(policy.precision),
      reader_(options) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    if (policy.slots[k] == 0) continue;
    pools_[k].emplace(compute_tier, std::string(unit_kind_name(kind)) + " weights", policy.slots[k],
                      layouts.buffer_bytes(kind));
    states_[k].resize(static_cast<size_t>(policy.slots[k]));
  }
}

std::span<std::byte> WeightSlots::buffer(const WeightUnit& unit, int32_t slot) const {
  return pools_[index_of(unit.kind)]->buffer(slot);
}

void WeightSlots::load(const WeightUnit& unit, int32_t slot) {
  state(unit, slot) = {};
  std::vector<ReadExtent> extents;
  for (const UnitRead& read : layouts_.of(unit).reads) {
    extents.push_back({.file = &files_[read.shard],
                       .offset = read.offset,
                       .bytes = read.bytes,
                       .destination = buffer(unit, slot).data() + read.at});
  }
  reader_.read(extents);
}

void WeightSlots::settle(const WeightUnit& unit, int32_t slot) {
  std::byte* data = buffer(unit, slot).data();
  for (const PlacedTensor& tensor : layouts_.of(unit).tensors) {
    if (tensor.at != tensor.arrives_at) {
      std::memmove(data + tensor.at, data + tensor.arrives_at, tensor.bytes);
    }
  }
}

WeightSet WeightSlots::weights(const WeightUnit& unit, int32_t slot) {
  WeightSet weights;
  const std::vector<PlacedTensor>& tensors = layouts_.of(unit).tensors;
  std::byte* data = buffer(unit, slot).data();
  Slot& here = state(unit, slot);
  const bool arrange = ++here.uses == 2;
  for (const PlacedTensor& tensor : tensors) {
    ElementOrder& order = here.orders[static_cast<size_t>(tensor.role)];
    if (arrange && may_be_arranged(tensors, tensor)) {
      order = ops_.arrange(data + tensor.at, tensor.dtype, tensor.shape, precision_);
    }
    weights.set(
        tensor.role,
        {.data = data + tensor.at, .dtype = tensor.dtype, .shape = tensor.shape, .order = order});
  }
  return weights;
}

ExpertWeights WeightSlots::expert(const WeightUnit& unit, int32_t slot) {
  const WeightSet views = weights(unit, slot);
  if (unit.kind == UnitKind::dense) {
    return {views[Role::dense_gate], views[Role::dense_up], views[Role::dense_down]};
  }
  return {views[Role::expert_gate], views[Role::expert_up], views[Role::expert_down]};
}

}  // namespace klotski
