#include "executor/weight_slots.h"

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
  for (const PlacedTensor& tensor : tensors) {
    weights.set(tensor.role, {.data = data + tensor.at,
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .order = here.orders[static_cast<size_t>(tensor.role)]});
  }
  if (++here.uses != 2) return weights;
  for (const PlacedTensor& tensor : tensors) {
    if (!may_be_arranged(weights, tensor.role)) continue;
    TensorView view = weights[tensor.role];
    view.order = ops_.arrange(data + tensor.at, view.dtype, view.shape, precision_);
    here.orders[static_cast<size_t>(tensor.role)] = view.order;
    weights.set(tensor.role, std::move(view));
  }
  return weights;
}

ExpertWeights WeightSlots::expert(const WeightUnit& unit, int32_t slot) {
  return expert_in(weights(unit, slot), unit.kind == UnitKind::expert);
}

}  // namespace klotski
