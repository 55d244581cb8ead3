#include "executor/weight_slots.h"

#include <algorithm>
#include <string>

#include "executor/quietly.h"

namespace klotski {

WeightSlots::WeightSlots(UnitSource& source, const UnitLayouts& layouts, const Policy& policy,
                         const ComputeMemory& memory, const Ops& ops)
    : source_(source),
      layouts_(layouts),
      ops_(ops),
      precision_(policy.precision),
      below_(memory.weights_below) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    if (policy.slots[k] == 0) continue;
    pools_[k].emplace(
        memory.pool(std::string(unit_kind_name(kind)) + " weights", policy.slots[k],
                    below_ ? layouts.packed_bytes(kind) : layouts.buffer_bytes(kind)));
    states_[k].resize(static_cast<size_t>(policy.slots[k]));
  }
  if (!memory.device) return;
  for (std::unique_ptr<CopyQueue>& link : links_) link = memory.device->device().new_queue();
}

std::span<std::byte> WeightSlots::buffer(const WeightUnit& unit, int32_t slot) const {
  return pools_[index_of(unit.kind)]->buffer(slot);
}

std::span<std::byte> WeightSlots::last_expert_slots(int64_t count) const {
  const BufferPool& experts = *pools_[index_of(UnitKind::expert)];
  return experts.bytes().subspan(static_cast<size_t>(experts.count() - count) *
                                 experts.buffer_bytes());
}

void WeightSlots::fetch(const Task& task) {
  below_->fetch(source_, layouts_, task.unit, task.slot_below);
}

void WeightSlots::begin_load(const Task& task) {
  CopyQueue& link = *links_[static_cast<size_t>(begun_ % 2)];
  std::byte* to = buffer(task.unit, task.slot).data();
  const std::byte* from = below_->slot(task.unit.kind, task.slot_below);
  try {
    uint64_t tensor_begin = 0;  // in the unit's own bytes, of which the task names some
    for (const PlacedTensor& tensor : layouts_.of(task.unit).tensors) {
      const uint64_t begin = std::max(task.offset, tensor_begin);
      const uint64_t end = std::min(task.offset + task.bytes, tensor_begin + tensor.bytes);
      const uint64_t skipped = begin - tensor_begin;
      tensor_begin += tensor.bytes;
      if (begin >= end) continue;
      link.to_device(to + tensor.packed_at + skipped, from + tensor.at + skipped, end - begin);
    }
  } catch (...) {
    quietly([&] { link.finish(); });  // the slot may be filled again at once
    throw;
  }
  ++begun_;
}

void WeightSlots::load(const Task& task) {
  state(task.unit, task.slot) = {};
  if (below_) return links_[static_cast<size_t>(finished_++ % 2)]->finish();
  source_.read(task.unit, layouts_.of(task.unit), buffer(task.unit, task.slot));
}

void WeightSlots::settle(const Task& task) {
  klotski::settle(layouts_.of(task.unit), buffer(task.unit, task.slot).data());
}

WeightSet WeightSlots::weights(const WeightUnit& unit, int32_t slot) {
  WeightSet weights;
  const std::vector<PlacedTensor>& tensors = layouts_.of(unit).tensors;
  std::byte* data = buffer(unit, slot).data();
  Slot& here = state(unit, slot);
  for (const PlacedTensor& tensor : tensors) {
    weights.set(tensor.role, {.data = data + place(tensor),
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .order = here.orders[static_cast<size_t>(tensor.role)]});
  }
  if (++here.uses != 2) return weights;
  for (const PlacedTensor& tensor : tensors) {
    if (!may_be_arranged(weights, tensor.role)) continue;
    TensorView view = weights[tensor.role];
    view.order = ops_.arrange(data + place(tensor), view.dtype, view.shape, precision_);
    here.orders[static_cast<size_t>(tensor.role)] = view.order;
    weights.set(tensor.role, std::move(view));
  }
  return weights;
}

ExpertWeights WeightSlots::expert(const WeightUnit& unit, int32_t slot) {
  return expert_in(weights(unit, slot), unit.kind == UnitKind::expert);
}

ExpertWeights WeightSlots::expert_below(const WeightUnit& unit, int32_t slot_below) const {
  WeightSet weights;
  const std::byte* data = below_->slot(unit.kind, slot_below);
  for (const PlacedTensor& tensor : layouts_.of(unit).tensors) {
    weights.set(tensor.role,
                {.data = data + tensor.at, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  return expert_in(weights, unit.kind == UnitKind::expert);
}

}  // namespace klotski
