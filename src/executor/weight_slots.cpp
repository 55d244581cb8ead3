#include "executor/weight_slots.h"

#include <algorithm>
#include <string>

#include "executor/quietly.h"
#include "schedule/group_bytes.h"

namespace klotski {

WeightSlots::WeightSlots(UnitSource& source, const UnitLayouts& layouts, const Policy& policy,
                         const ComputeMemory& memory, const Processor& ops)
    : source_(source),
      layouts_(layouts),
      ops_(ops),
      cpu_(memory.cpu ? *memory.cpu : ops),
      precision_(policy.precision),
      host_slots_(memory.host_slots) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    if (policy.layout.compute().slots[k] == 0) continue;
    pools_[k].emplace(memory.pool(
        std::string(unit_kind_name(kind)) + " weights", policy.layout.compute().slots[k],
        host_slots_ ? layouts.packed_bytes(kind) : layouts.buffer_bytes(kind)));
    states_[k].resize(static_cast<size_t>(policy.layout.compute().slots[k]));
  }
  if (!memory.device) return;
  if (policy.division.slices_experts) {
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
  host_slots_->fetch(source_, layouts_, task.unit, task.slot, cpu_);
}

void WeightSlots::begin_load(const Task& task) {
  CopyQueue& queue = link(begun_);
  const auto copies = [&] {
    if (task.sliced > 0) {
      begin_slice_copies(queue, task);
    } else {
      begin_copies(queue, task);
    }
    queue.publish();
  };
  begin_or_finish(copies, [&] { queue.finish(); });  // the slot may be filled again at once
  if (task.sliced > 0) {
    slice_load_ = begun_;
  } else {
    state(task.unit, task.slot) = {.load = begun_};
  }
  ++begun_;
}

void WeightSlots::await_load(const Task& expert) const {
  const int64_t load = expert.sliced > 0 ? slice_load_ : state(expert.unit, expert.slot).load;
  if (load >= finished_) ops_.memory.wait_for_copies(link(load));
}

void WeightSlots::begin_copies(CopyQueue& link, const Task& task) const {
  std::byte* to = buffer(task.unit, task.slot).data();
  const std::byte* from = host_slots_->slot(task.unit.kind, task.source_slot);
  uint64_t part_begin = 0;  // byte among the unit's own bytes, of which the task names some
  for (const PlacedPart& part : layouts_.of(task.unit).parts) {
    const uint64_t begin = std::max(task.offset, part_begin);
    const uint64_t end = std::min(task.offset + task.bytes, part_begin + part.bytes);
    const uint64_t skipped = begin - part_begin;
    part_begin += part.bytes;
    if (begin >= end) continue;
    link.to_device(to + part.packed_at + skipped, from + part.at + skipped, end - begin);
  }
}

void WeightSlots::begin_slice_copies(CopyQueue& link, const Task& task) const {
  ExpertWeights from =
      outputs_between(expert_in_host(task.unit, task.source_slot, 0), 0, task.sliced);
  std::byte* to = slice_->buffer(0).data();
  for (const TensorView* part : from.tensors()) {
    for (const BytePlane& plane : planes_of(*part)) {
      link.rows_to_device(to, plane.data, plane.row_bytes, plane.rows, plane.stride);
      to += DeviceMemory::rounded(plane.bytes());
    }
  }
}

ExpertWeights WeightSlots::expert_slice(const WeightUnit& unit, int64_t outputs) const {
  ExpertWeights slice = outputs_between(expert_in_host(unit, 0, 0), 0, outputs);
  const std::byte* at = slice_->buffer(0).data();
  for (TensorView* part : slice.tensors()) {
    std::vector<const std::byte*> planes;
    for (const BytePlane& plane : planes_of(*part)) {
      planes.push_back(at);
      at += DeviceMemory::rounded(plane.bytes());
    }
    *part = with_planes(*part, planes);
  }
  return slice;
}

void WeightSlots::finish_load() {
  const CountedAtEnd<int64_t> counted{finished_, 1};
  link(finished_).finish();
}

void WeightSlots::load(const Task& task) {
  if (host_slots_) {
    begin_load(task);
    return finish_load();
  }
  state(task.unit, task.slot) = {};
  source_.read(task.unit, layouts_.of(task.unit), buffer(task.unit, task.slot), cpu_);
}

void WeightSlots::settle(const Task& task) {
  klotski::settle(layouts_.of(task.unit), buffer(task.unit, task.slot).data());
}

WeightSet WeightSlots::weights(const WeightUnit& unit, int32_t slot) {
  WeightSet weights;
  const UnitLayout& layout = layouts_.of(unit);
  std::byte* data = buffer(unit, slot).data();
  Slot& here = state(unit, slot);
  for (const PlacedTensor& tensor : layout.tensors) {
    TensorView view = host_slots_ ? layout.packed_view(tensor, data) : layout.view(tensor, data);
    view.order = here.orders[static_cast<size_t>(tensor.role)];
    weights.set(tensor.role, std::move(view));
  }
  if (++here.uses != 2) return weights;
  for (const PlacedTensor& tensor : layout.tensors) {
    if (!may_be_arranged(weights, tensor.role)) continue;
    TensorView view = weights[tensor.role];
    view.order = ops_.arrange(data + (view.data - data), view.dtype, view.shape, precision_);
    here.orders[static_cast<size_t>(tensor.role)] = view.order;
    weights.set(tensor.role, std::move(view));
  }
  return weights;
}

ExpertWeights WeightSlots::expert(const WeightUnit& unit, int32_t slot) {
  return expert_in(weights(unit, slot), unit.kind == UnitKind::expert);
}

ExpertWeights WeightSlots::expert_in_host(const WeightUnit& unit, int32_t host_slot,
                                          int64_t from) const {
  const ExpertWeights whole =
      expert_at(host_slots_->slot(unit.kind, host_slot), unit.kind, layouts_.of(unit));
  return from == 0 ? whole : outputs_between(whole, from, whole.gate.rows());
}

}  // namespace klotski
