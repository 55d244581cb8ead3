#include "schedule/builder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace klotski {

FragmentBuilder::FragmentBuilder(const Policy& policy, Residency& residency,
                                 ScheduleContext context)
    : policy_(policy), residency_(residency), context_(std::move(context)) {}

WeightUnit FragmentBuilder::expert_of(LayerId layer, ExpertId expert) const {
  return expert_unit(context_.model, layer, expert);
}

bool FragmentBuilder::shares_experts() const {
  return !policy_.division.costs.empty() && context_.group_rows() <= policy_.division.shared_rows;
}

const ExpertCosts* FragmentBuilder::shared_costs(LayerId layer) const {
  const bool routed = context_.model.layer(layer).feed_forward.routed;
  return routed && shares_experts() ? &policy_.division.costs.of(layer) : nullptr;
}

double FragmentBuilder::seconds_until_next(LayerId layer) const {
  const bool last = layer.value + 1 == context_.model.layer_count();
  return policy_.division.costs.of(layer).between +
         (last ? policy_.division.costs.between_passes : 0.0);
}

Resource FragmentBuilder::slot_of(const WeightUnit& unit) const {
  return {Place::slot, residency_.slot(unit), unit.kind};
}

int32_t FragmentBuilder::stage_of(int32_t micro_batch) const {
  return micro_batch % static_cast<int32_t>(policy_.layout.kv_stages);
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
                       .bytes = context_.facts(unit).read_bytes,
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
  const UnitFacts facts = context_.facts(unit);
  Task load{.work = Work::load,
            .lane = Lane::disk_read,
            .unit = unit,
            .slot = leased->slot,
            .layer = unit.layer,
            .bytes = facts.read_bytes,
            .reason = reason,
            .writes = {slot_of(unit)},
            .after = std::move(after)};
  link_bytes_ += facts.own_bytes;
  if (policy_.layout.memory_below()) {
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
  const bool limited = policy_.cache.loads_ahead > 0 && residency_.lent_slots() == 0;
  return (limited && residency_.loads_ahead() >= policy_.cache.loads_ahead) ||
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

bool FragmentBuilder::comes_through_stage(int32_t micro_batch) const {
  return context_.group[static_cast<size_t>(micro_batch)].spilled && !attends_below(micro_batch);
}

bool FragmentBuilder::loads_kv() const {
  for (int32_t k = 0; k < micro_batches(); ++k) {
    if (comes_through_stage(k)) return true;
  }
  return false;
}

void FragmentBuilder::load_kv(LayerId layer, int32_t micro_batch) {
  if (micro_batch >= micro_batches() || !comes_through_stage(micro_batch)) return;
  fragment_.push_back({.work = Work::load_kv,
                       .lane = Lane::kv_in,
                       .layer = layer,
                       .micro_batch = micro_batch,
                       .stage = stage_of(micro_batch),
                       .reads = {{Place::kv, micro_batch}},
                       .writes = {{Place::stage, stage_of(micro_batch)}}});
}

void FragmentBuilder::store_kv(LayerId layer, int32_t micro_batch) {
  if (!context_.group[static_cast<size_t>(micro_batch)].spilled) return;
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
  if (context_.group[static_cast<size_t>(micro_batch)].spilled) {
    task.stage = stage_of(micro_batch);
    task.writes.push_back({Place::stage, task.stage});
  } else {
    task.writes.push_back({Place::kv, micro_batch});
  }
  fragment_.push_back(std::move(task));
}

bool FragmentBuilder::attends_below(int32_t micro_batch) const {
  const MicroBatchShape& shape = context_.group[static_cast<size_t>(micro_batch)];
  return policy_.division.cpu_attention && shape.spilled && shape.decodes;
}

// In the order in which they begin, from layer to layer: with one more than begin ahead, none is
// needed before it was used.
int32_t FragmentBuilder::attention_buffer(LayerId layer, int32_t micro_batch) const {
  const int64_t begun = int64_t{layer.value} * micro_batches() + micro_batch;
  return static_cast<int32_t>(begun % kAttentionBuffers);
}

// A task of a buffer that the device and the CPU exchange.
Task FragmentBuilder::exchange(Work work, Lane lane, LayerId layer, int32_t micro_batch) const {
  const Attention& shape = context_.model.layer(layer).attention;
  const int64_t floats = work == Work::queries_down ? shape.input_width() : shape.output_width();
  const int64_t rows = context_.group[static_cast<size_t>(micro_batch)].rows;
  return {.work = work,
          .lane = lane,
          .layer = layer,
          .micro_batch = micro_batch,
          .buffer = attention_buffer(layer, micro_batch),
          .bytes = static_cast<uint64_t>(rows * floats) * sizeof(float)};
}

void FragmentBuilder::begin_attention_below(LayerId layer, int32_t micro_batch) {
  Task project = compute(Work::project, attention_unit(layer), layer, micro_batch);
  project.buffer = attention_buffer(layer, micro_batch);
  const auto buffer = [&](Place place) { return Resource{place, project.buffer}; };
  project.reads.push_back({Place::hidden, micro_batch});
  project.writes = {buffer(Place::queries)};
  Task down = exchange(Work::queries_down, Lane::rows_down, layer, micro_batch);
  down.reads = {buffer(Place::queries)};
  down.writes = {buffer(Place::queries_below)};
  Task attention = exchange(Work::attention_on_cpu, Lane::cpu, layer, micro_batch);
  attention.bytes = 0;
  attention.reads = {buffer(Place::queries_below)};
  attention.writes = {{Place::kv, micro_batch}, buffer(Place::attended_below)};
  for (Task* task : {&project, &down, &attention}) fragment_.push_back(std::move(*task));
}

void FragmentBuilder::attended_up(LayerId layer, int32_t micro_batch) {
  Task task = exchange(Work::attended_up, Lane::rows_up, layer, micro_batch);
  task.reads = {{Place::attended_below, task.buffer}};
  task.writes = {{Place::attended, task.buffer}};
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::project_back(LayerId layer, int32_t micro_batch) {
  Task task = compute(Work::project_back, attention_unit(layer), layer, micro_batch);
  task.buffer = attention_buffer(layer, micro_batch);
  task.reads.push_back({Place::attended, task.buffer});
  task.writes = {{Place::hidden, micro_batch}};
  fragment_.push_back(std::move(task));
}

std::vector<WeightUnit> FragmentBuilder::units_of_layer(LayerId layer) const {
  std::vector<WeightUnit> units = {attention_unit(layer), gate_unit(layer)};
  const int64_t experts = context_.model.layer(layer).feed_forward.experts;
  for (int64_t e = 0; e < experts; ++e) units.push_back(expert_of(layer, ExpertId(e)));
  return units;
}

bool FragmentBuilder::has_double_buffer() const {
  if (!policy_.layout.memory_below()) return false;
  const std::array<int64_t, kUnitKinds> most = most_units_of_layer(context_.model);
  for (size_t k = 0; k < kUnitKinds; ++k) {
    int64_t slots = policy_.layout.slots[k];
    if (k == index_of(UnitKind::expert)) slots -= residency_.lent_slots();
    const auto units =
        static_cast<int64_t>(units_of(context_.model, static_cast<UnitKind>(k)).size());
    if (slots < std::min(2 * most[k], units)) return false;
  }
  return true;
}

std::vector<PagedUnit> FragmentBuilder::lease_layer(LayerId layer) {
  std::vector<PagedUnit> to_load;
  for (const WeightUnit& unit : units_of_layer(layer)) {
    const auto leased = residency_.lease(unit);
    if (!leased) fail(ErrorKind::internal, "no slot for {} in pages", format_unit(unit));
    if (leased->must_load) to_load.push_back({unit, context_.facts(unit).own_bytes});
  }
  return to_load;
}

void FragmentBuilder::pin_page(const std::vector<PagePiece>& page) {
  for (const PagePiece& piece : page) fetch(piece.unit, LoadReason::certain, {});
}

void FragmentBuilder::load_page(const std::vector<PagePiece>& page) {
  for (const PagePiece& piece : page) {
    const int32_t below = fetch(piece.unit, LoadReason::certain, {});
    link_bytes_ += piece.bytes;
    Task load{.work = Work::load,
              .lane = Lane::to_device,
              .unit = piece.unit,
              .slot = residency_.slot(piece.unit),
              .slot_below = below,
              .layer = piece.unit.layer,
              .offset = piece.offset,
              .bytes = piece.bytes,
              .partial = piece.bytes < known_.facts(piece.unit).own_bytes,
              .reads = {{Place::below, below, piece.unit.kind}}};
    // The first part waits for whatever the slot held, the others for that one.
    std::vector<Resource>& touched = piece.offset == 0 ? load.writes : load.fills;
    touched.push_back(slot_of(piece.unit));
    fragment_.push_back(std::move(load));
  }
}

void FragmentBuilder::release_layer(LayerId layer) {
  for (const WeightUnit& unit : units_of_layer(layer)) residency_.release(unit);
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
  on_rows_of(task, micro_batch);
  fragment_.push_back(std::move(task));
}

// What an expert on the compute tier reads and writes besides its weights.
void FragmentBuilder::on_rows_of(Task& expert, int32_t micro_batch) const {
  for (int32_t k = 0; k < micro_batches(); ++k) {
    if (micro_batch != kWholeGroup && micro_batch != k) continue;
    expert.reads.push_back({Place::normed, k});
    expert.reads.push_back({Place::routing, k});
    expert.fills.push_back({Place::outputs, k});  // the rows and choices that are its own
  }
}

void FragmentBuilder::count_choices(LayerId layer, const std::vector<ExpertId>& experts) {
  for (const ExpertId expert : experts) {
    const int64_t rows = std::llround(context_.rows(expert));  // of a simulation about whole
    residency_.chosen(expert_of(layer, expert), std::max<int64_t>(1, rows));
  }
}

void FragmentBuilder::rows_down(LayerId layer) {
  Task task{
      .work = Work::rows_down,
      .lane = Lane::rows_down,
      .layer = layer,
      .bytes = static_cast<uint64_t>(context_.group_rows() * context_.model.hidden) * sizeof(float),
      .reads = of_all_batches(Place::normed),
      .writes = {{Place::rows_below, 0}}};
  for (const Resource& routing : of_all_batches(Place::routing)) task.reads.push_back(routing);
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::expert_below(LayerId layer, ExpertId expert, int64_t sliced) {
  const WeightUnit unit = expert_of(layer, expert);
  residency_.chosen(unit, 1);  // as the lease of one above counts
  const int32_t slot = fetch(unit, LoadReason::demand, of_all_batches(Place::routing));
  fragment_.push_back({.work = Work::expert_on_cpu,
                       .lane = Lane::cpu,
                       .unit = unit,
                       .slot_below = slot,
                       .layer = layer,
                       .sliced = sliced,
                       .reads = {{Place::below, slot, unit.kind}, {Place::rows_below, 0}},
                       .writes = {{Place::outputs_below, expert.value}}});
  const double rows = context_.rows(expert) * static_cast<double>(context_.model.hidden);
  fragment_.push_back({.work = Work::rows_up,
                       .lane = Lane::rows_up,
                       .unit = unit,
                       .layer = layer,
                       .bytes = static_cast<uint64_t>(rows) * sizeof(float),
                       .reads = {{Place::outputs_below, expert.value}},
                       .writes = {{Place::arrived, expert.value}}});
}

void FragmentBuilder::expert_slice(LayerId layer, ExpertId expert, int64_t outputs) {
  const WeightUnit unit = expert_of(layer, expert);
  const auto width = static_cast<uint64_t>(context_.model.layer(layer).feed_forward.width);
  const int32_t slot = fetch(unit, LoadReason::demand, of_all_batches(Place::routing));
  Task load{.work = Work::load,
            .lane = Lane::to_device,
            .unit = unit,
            .slot_below = slot,
            .layer = layer,
            .bytes = context_.facts(unit).own_bytes / width * static_cast<uint64_t>(outputs),
            .sliced = outputs,
            .reason = LoadReason::demand,
            .reads = {{Place::below, slot, unit.kind}},
            .writes = {{Place::slice, 0}},
            .after = of_all_batches(Place::routing)};
  link_bytes_ += load.bytes;
  fragment_.push_back(std::move(load));
  Task compute{.work = Work::expert,
               .unit = unit,
               .layer = layer,
               .sliced = outputs,
               .reads = {{Place::slice, 0}},
               .writes = {{Place::slice_outputs, 0}}};
  on_rows_of(compute, kWholeGroup);
  fragment_.push_back(std::move(compute));
}

void FragmentBuilder::scatter(LayerId layer, ExpertId expert, int64_t sliced) {
  Task task{.work = Work::scatter,
            .unit = expert_of(layer, expert),
            .layer = layer,
            .sliced = sliced,
            .reads = of_all_batches(Place::routing),
            .fills = of_all_batches(Place::outputs)};
  task.reads.push_back({Place::arrived, expert.value});
  if (sliced > 0) task.reads.push_back({Place::slice_outputs, 0});  // it is added to these
  fragment_.push_back(std::move(task));
}

void FragmentBuilder::refill(LayerId layer, ExpertId expert) {
  const WeightUnit unit = expert_of(layer, expert);
  if (!residency_.worth_bringing(unit)) return;
  if (request(unit, LoadReason::prefetch)) done(unit);
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
      compute(Work::logits, model_unit(), LayerId(context_.model.layer_count() - 1), micro_batch);
  task.reads.push_back({Place::hidden, micro_batch});
  task.writes = {{Place::logits, 0}};
  fragment_.push_back(std::move(task));
}

Fragment FragmentBuilder::take() { return std::exchange(fragment_, {}); }

}  // namespace klotski
