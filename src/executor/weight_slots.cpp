#include "executor/weight_slots.h"

#include <algorithm>
#include <string>

#include "executor/quietly.h"

namespace klotski {

namespace {

// Of the elements that a slice has of one of its matrices.
uint64_t part_bytes(const TensorView& matrix) {
  return DeviceMemory::rounded(static_cast<uint64_t>(matrix.rows() * matrix.columns()) *
                               static_cast<uint64_t>(bytes_per_element(matrix.dtype)));
}

// Outputs begin .. end - 1.
ExpertWeights outputs_between(const ExpertWeights& whole, int64_t begin, int64_t end) {
  return {rows_between(whole.gate, begin, end), rows_between(whole.up, begin, end),
          columns_between(whole.down, begin, end)};
}

}  // namespace

uint64_t slice_bytes(const UnitLayouts& layouts) {
  const auto whole = static_cast<double>(layouts.packed_bytes(UnitKind::expert));
  return static_cast<uint64_t>(whole * kMostSlice) + 3 * DeviceMemory::rounded(1);
}

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
  if (policy.slices_experts) {
    slice_.emplace(memory.pool("slice of an expert", 1, slice_bytes(layouts)));
  }
  for (std::unique_ptr<CopyQueue>& link : links_)
    link = memory.device->device().new_queue(CopySize::large);
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
  try {
    if (task.sliced > 0) {
      begin_slice_copies(link, task);
    } else {
      begin_copies(link, task);
    }
  } catch (...) {
    quietly([&] { link.finish(); });  // the slot may be filled again at once
    throw;
  }
  ++begun_;
}

void WeightSlots::begin_copies(CopyQueue& link, const Task& task) const {
  std::byte* to = buffer(task.unit, task.slot).data();
  const std::byte* from = below_->slot(task.unit.kind, task.slot_below);
  uint64_t tensor_begin = 0;  // in the unit's own bytes, of which the task names some
  for (const PlacedTensor& tensor : layouts_.of(task.unit).tensors) {
    const uint64_t begin = std::max(task.offset, tensor_begin);
    const uint64_t end = std::min(task.offset + task.bytes, tensor_begin + tensor.bytes);
    const uint64_t skipped = begin - tensor_begin;
    tensor_begin += tensor.bytes;
    if (begin >= end) continue;
    link.to_device(to + tensor.packed_at + skipped, from + tensor.at + skipped, end - begin);
  }
}

void WeightSlots::begin_slice_copies(CopyQueue& link, const Task& task) const {
  const ExpertWeights from =
      outputs_between(expert_below(task.unit, task.slot_below, 0), 0, task.sliced);
  std::byte* to = slice_->buffer(0).data();
  for (const TensorView* part : {&from.gate, &from.up, &from.down}) {
    const auto element = static_cast<uint64_t>(bytes_per_element(part->dtype));
    link.rows_to_device(to, part->data, static_cast<uint64_t>(part->columns()) * element,
                        static_cast<uint64_t>(part->rows()),
                        static_cast<uint64_t>(part->stride()) * element);
    to += part_bytes(*part);
  }
}

ExpertWeights WeightSlots::expert_slice(const WeightUnit& unit, int64_t outputs) const {
  ExpertWeights slice = outputs_between(expert_below(unit, 0, 0), 0, outputs);
  const std::byte* at = slice_->buffer(0).data();
  for (TensorView* part : {&slice.gate, &slice.up, &slice.down}) {
    part->data = at;
    part->row_stride = 0;
    at += part_bytes(*part);
  }
  return slice;
}

void WeightSlots::load(const Task& task) {
  if (task.sliced == 0) state(task.unit, task.slot) = {};
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

ExpertWeights WeightSlots::expert_below(const WeightUnit& unit, int32_t slot_below,
                                        int64_t from) const {
  WeightSet weights;
  const std::byte* data = below_->slot(unit.kind, slot_below);
  for (const PlacedTensor& tensor : layouts_.of(unit).tensors) {
    weights.set(tensor.role,
                {.data = data + tensor.at, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  const ExpertWeights whole = expert_in(weights, unit.kind == UnitKind::expert);
  return from == 0 ? whole : outputs_between(whole, from, whole.gate.rows());
}

}  // namespace klotski
