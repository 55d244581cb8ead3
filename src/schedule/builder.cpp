#include "schedule/builder.h"

#include "base/error.h"

namespace klotski {

UnitFacts facts_of(const UnitLayouts& layouts, const WeightUnit& unit) {
  const UnitLayout& layout = layouts.of(unit);
  return {layout.read_bytes, layout.must_settle(), layout.own_bytes};
}

FragmentBuilder::FragmentBuilder(const Policy& policy, Residency& residency, Known known)
    : policy_(policy), residency_(residency), known_(std::move(known)) {}

WeightUnit FragmentBuilder::expert_of(LayerId layer, ExpertId expert) const {
  return expert_unit(known_.model, layer, expert);
}

Resource FragmentBuilder::slot_of(const WeightUnit& unit) const {
  return {Place::slot, residency_.slot(unit), unit.kind};
}

int32_t FragmentBuilder::stage_of(int32_t micro_batch) const {
  return micro_batch % static_cast<int32_t>(policy_.kv_stages);
}

// Brings a unit from disk into the memory below unless it is there; returns its slot there.
int32_t FragmentBuilder::fetch(const WeightUnit& unit, LoadReason reason,
                               std::vector<Resource> after) {
  const Residency::Leased below = residency_.below(unit);
  if (!below.must_load) return below.slot;
  fragment_.push_back({.work = Work::fetch,
                       .lane = Lane::disk_read,
                       .unit = unit,
                       .slot_below = below.slot,
                       .layer = unit.layer,
                       .bytes = known_.facts(unit).read_bytes,
                       .reason = reason,
                       .writes = {{Place::below, below.slot, unit.kind}},
                       .after = std::move(after)});
  return below.slot;
}

bool FragmentBuilder::bring(const WeightUnit& unit, LoadReason reason,
                            std::vector<Resource> after) {
  const auto leased = residency_.lease(unit);
  if (!leased) return false;
  if (!leased->must_load) return true;
  const UnitFacts facts = known_.facts(unit);
  Task load{.work = Work::load,
            .lane = Lane::disk_read,
            .unit = unit,
            .slot = leased->slot,
            .layer = unit.layer,
            .bytes = facts.read_bytes,
            .reason = reason,
            .writes = {slot_of(unit)},
            .after = std::move(after)};
  if (policy_.memory_below()) {
    load.lane = Lane::to_device;
    load.bytes = facts.own_bytes;
    load.slot_below = fetch(unit, reason, load.after);
    load.reads = {{Place::below, load.slot_below, unit.kind}};
    fragment_.push_back(std::move(load));
    return true;
  }
  fragment_.push_back(load);
  if (facts.must_settle) {
    load.work = Work::settle;
    load.lane = Lane::host_copy;
    load.after.clear();
    fragment_.push_back(load);
  }
  return true;
}

void FragmentBuilder::preload(const WeightUnit& unit) {
  need(unit);
  done(unit);
}

void FragmentBuilder::preload_below(const WeightUnit& unit) {
  fetch(unit, LoadReason::certain, {});
}

std::vector<Resource> FragmentBuilder::of_all_batches(Place place) const {
  std::vector<Resource> resources;
  for (int32_t k = 0; k < micro_batches(); ++k) resources.push_back({place, k});
  return resources;
}

// What is only wanted for later takes the place of nothing that is to stay.
bool FragmentBuilder::enough_ahead(const WeightUnit& unit, LoadReason reason) const {
  if (unit.kind != UnitKind::expert || reason == LoadReason::certain) return false;
  if (residency_.resident(unit)) return false;
  const bool limited = policy_.loads_ahead > 0 && residency_.lent_slots() == 0;
  return (limited && residency_.loads_ahead() >= policy_.loads_ahead) ||
         !residency_.room_beside_kept();
}

bool FragmentBuilder::request(const WeightUnit& unit, LoadReason reason) {
  if (enough_ahead(unit, reason)) return false;
  // A guess at experts rests on what the gates before it chose.
  std::vector<Resource> after;
  if (reason == LoadReason::prefetch) after = of_all_batches(Place::routing);
  return bring(unit, reason, std::move(after));
}

bool FragmentBuilder::request_in_step(const WeightUnit& unit, LoadReason reason) {
  if (enough_ahead(unit, reason)) return false;
  return bring(unit, reason, of_all_batches(Place::hidden));
}

void FragmentBuilder::request_chosen(LayerId layer, int32_t micro_batch,
                                     const std::vector<ExpertId>& chosen) {
  for (const ExpertId expert : chosen) {
    const WeightUnit unit = expert_of(layer, expert);
    if (enough_ahead(unit, LoadReason::demand)) return;
    if (!bring(unit, LoadReason::demand, {{Place::routing, micro_batch}})) return;
  }
}

void FragmentBuilder::need(const WeightUnit& unit) {
  const LoadReason reason =
      unit.kind == UnitKind::expert ? LoadReason::demand : LoadReason::certain;
  while (!bring(unit, reason, {})) residency_.give_way(unit);
}

std::vector<WeightUnit> FragmentBuilder::requested(LayerId layer) const {
  return residency_.leased_of(expert_of(layer, ExpertId(0)).kind, layer);
}

Task FragmentBuilder::compute(Work work, const WeightUnit& unit, LayerId layer,
                              int32_t micro_batch) const {
  return {.work = work,
          .unit = unit,
          .slot = residency_.slot(unit),
          .layer = layer,
          .micro_batch = micro_batch,
          .reads = {slot_of(unit)},
          .writes = {}};
}

void FragmentBuilder::embed(int32_t micro_batch) {
  Task task = compute(Work::embed, model_unit(), LayerId(0), micro_batch);
  task.writes = {{Place::hidden, micro_batch}};
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::load_kv(LayerId layer, int32_t micro_batch) {
  if (micro_batch >= micro_batches() || !known_.group[static_cast<size_t>(micro_batch)].spilled) {
    return;
  }
  fragment_.push_back({.work = Work::load_kv,
                       .lane = Lane::kv_in,
                       .layer = layer,
                       .micro_batch = micro_batch,
                       .stage = stage_of(micro_batch),
                       .reads = {{Place::kv, micro_batch}},
                       .writes = {{Place::stage, stage_of(micro_batch)}}});
}

void FragmentBuilder::store_kv(LayerId layer, int32_t micro_batch) {
  if (!known_.group[static_cast<size_t>(micro_batch)].spilled) return;
  fragment_.push_back({.work = Work::store_kv,
                       .lane = Lane::kv_out,
                       .layer = layer,
                       .micro_batch = micro_batch,
                       .stage = stage_of(micro_batch),
                       .reads = {{Place::stage, stage_of(micro_batch)}},
                       .writes = {{Place::kv, micro_batch}}});
}

void FragmentBuilder::attention(LayerId layer, int32_t micro_batch) {
  Task task = compute(Work::attention, attention_unit(layer), layer, micro_batch);
  task.writes = {{Place::hidden, micro_batch}};
  if (known_.group[static_cast<size_t>(micro_batch)].spilled) {
    task.stage = stage_of(micro_batch);
    task.writes.push_back({Place::stage, task.stage});
  } else {
    task.writes.push_back({Place::kv, micro_batch});
  }
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::gate(LayerId layer, int32_t micro_batch,
                           const std::vector<WeightUnit>& behind) {
  Task task = compute(Work::gate, gate_unit(layer), layer, micro_batch);
  task.reads.push_back({Place::hidden, micro_batch});
  for (const WeightUnit& unit : behind) task.reads.push_back(slot_of(unit));
  task.writes = {{Place::normed, micro_batch}, {Place::routing, micro_batch}};
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::expert(LayerId layer, ExpertId expert, int32_t micro_batch) {
  Task task = compute(Work::expert, expert_of(layer, expert), layer, micro_batch);
  for (int32_t k = 0; k < micro_batches(); ++k) {
    if (micro_batch != kWholeGroup && micro_batch != k) continue;
    task.reads.push_back({Place::normed, k});
    task.reads.push_back({Place::routing, k});
    task.fills.push_back({Place::outputs, k});  // the rows and choices that are its own
  }
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::combine(LayerId layer, int32_t micro_batch) {
  Task task = compute(Work::combine, gate_unit(layer), layer, micro_batch);
  for (const Place place : {Place::outputs, Place::normed, Place::routing}) {
    task.reads.push_back({place, micro_batch});
  }
  task.writes = {{Place::hidden, micro_batch}};
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::logits(int32_t micro_batch) {
  Task task =
      compute(Work::logits, model_unit(), LayerId(known_.model.layer_count() - 1), micro_batch);
  task.reads.push_back({Place::hidden, micro_batch});
  task.writes = {{Place::logits, 0}};
  fragment_.push_back(std::move(task));
}

Fragment FragmentBuilder::take() { return std::exchange(fragment_, {}); }

}  // namespace klotski
