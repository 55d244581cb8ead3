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

Resource FragmentBuilder::slot_of(const WeightUnit& unit, TierId tier) const {
  return {Place::slot, residency_.slot(unit, tier), unit.kind, tier};
}

int32_t FragmentBuilder::stage_of(int32_t micro_batch) const {
  return micro_batch % static_cast<int32_t>(policy_.layout.kv_stages);
}

// Lets a task that fills a slot have its bytes from the source of the slot's tier: over a link,
// after the unit was brought there, or from a disk.
void FragmentBuilder::come_from_source(Task& task, const Order& order) {
  const TierMemory& memory = *policy_.layout.find(task.tier);
  task.lane = weights_lane(memory.source, task.tier);
  if (!policy_.layout.find(memory.source)) return;
  task.source_slot = fetch(task.unit, memory.source, order);
  task.reads.push_back({Place::slot, task.source_slot, task.unit.kind, memory.source});
}

// Brings a unit into a memory that other tiers have their weights from, unless it is there; returns
// its slot there.
int32_t FragmentBuilder::fetch(const WeightUnit& unit, TierId tier, const Order& order) {
  const Residency::Leased here = residency_.pass_through(unit, tier);
  if (!here.must_load) return here.slot;
  Task task{.work = Work::fetch,
            .unit = unit,
            .tier = tier,
            .slot = here.slot,
            .layer = unit.layer,
            .bytes = context_.facts(unit).read_bytes,
            .reason = order.reason,
            .priority = order.priority,
            .writes = {{Place::slot, here.slot, unit.kind, tier}},
            .after = order.after};
  come_from_source(task, order);
  fragment_.push_back(std::move(task));
  return here.slot;
}

bool FragmentBuilder::bring(const WeightUnit& unit, TierId tier, const Order& order) {
  const auto leased = residency_.lease(unit, tier);
  if (!leased) return false;
  if (leased->must_load) load_into(leased->slot, unit, tier, order);
  return true;
}

// Fills a slot of a compute tier.
void FragmentBuilder::load_into(int32_t slot, const WeightUnit& unit, TierId tier,
                                const Order& order) {
  const UnitFacts facts = context_.facts(unit);
  Task load{.work = Work::load,
            .unit = unit,
            .tier = tier,
            .slot = slot,
            .layer = unit.layer,
            .bytes = facts.own_bytes,
            .reason = order.reason,
            .priority = order.priority,
            .writes = {{Place::slot, slot, unit.kind, tier}},
            .after = order.after};
  if (tier == kComputeTier) link_bytes_ += facts.own_bytes;
  come_from_source(load, order);
  const bool from_disk = load.source_slot < 0;
  if (from_disk) load.bytes = facts.read_bytes;
  fragment_.push_back(std::move(load));
  if (!from_disk || !facts.must_settle) return;
  Task settle = fragment_.back();
  settle.work = Work::settle;
  settle.lane = settle_lane(tier);
  settle.after.clear();
  fragment_.push_back(std::move(settle));
}

bool FragmentBuilder::guess(const WeightUnit& expert, double priority) {
  if (!residency_.worth_bringing(expert)) return false;
  const std::optional<int32_t> slot = residency_.bring_ahead(expert);
  if (!slot) return false;
  // A guess rests on the choices of the gates before it.
  load_into(*slot, expert, kComputeTier,
            {LoadReason::prefetch, of_all_batches(Place::routing),
             static_cast<float>(priority) + kGuessPriority});
  return true;
}

// A guess is a guess no more once the unit was requested. A unit whose load into the compute tier
// was withdrawn may still be on its way to that tier's source.
void FragmentBuilder::take_back(const WeightUnit& expert, TaskSink& sink) {
  if (residency_.leased(expert)) return;
  for (const TierMemory* memory = &policy_.layout.compute(); memory;
       memory = policy_.layout.source_of(memory->tier)) {
    if (!sink.withdraw(expert, memory->tier)) return;
    residency_.forget(expert, memory->tier);
  }
}

void FragmentBuilder::preload(const WeightUnit& unit, TierId tier) {
  if (tier.kind != TierKind::compute) {
    fetch(unit, tier, {});
    return;
  }
  need(unit, tier);
  done(unit, tier);
}

std::vector<Resource> FragmentBuilder::of_all_batches(Place place) const {
  std::vector<Resource> resources;
  for (int32_t k = 0; k < micro_batches(); ++k) resources.push_back({place, k});
  return resources;
}

// Whether enough units were requested ahead. A unit that only a later layer needs replaces no unit
// that is to stay.
bool FragmentBuilder::enough_ahead(const WeightUnit& unit, LoadReason reason) const {
  if (unit.kind != UnitKind::expert || reason == LoadReason::certain) return false;
  if (residency_.resident(unit)) return false;
  const bool limited = policy_.cache.loads_ahead > 0 && residency_.lent_slots() == 0;
  return (limited && residency_.loads_ahead() >= policy_.cache.loads_ahead) ||
         !residency_.room_beside_kept();
}

bool FragmentBuilder::request(const WeightUnit& unit, LoadReason reason, TierId tier) {
  if (tier == kComputeTier && enough_ahead(unit, reason)) return false;
  // A guess at experts rests on the choices of the gates before it.
  std::vector<Resource> after;
  if (reason == LoadReason::prefetch) after = of_all_batches(Place::routing);
  return bring(unit, tier, {reason, std::move(after)});
}

bool FragmentBuilder::request_in_step(const WeightUnit& unit, LoadReason reason) {
  if (enough_ahead(unit, reason)) return false;
  return bring(unit, kComputeTier, {reason, of_all_batches(Place::hidden)});
}

void FragmentBuilder::request_chosen(LayerId layer, int32_t micro_batch,
                                     const std::vector<ExpertId>& chosen) {
  const Order order{LoadReason::demand, {{Place::routing, micro_batch}}};
  for (const ExpertId expert : chosen) {
    const WeightUnit unit = expert_of(layer, expert);
    if (enough_ahead(unit, LoadReason::demand)) return;
    if (!bring(unit, kComputeTier, order)) return;
  }
}

bool FragmentBuilder::need(const WeightUnit& unit, TierId tier) {
  const LoadReason reason =
      unit.kind == UnitKind::expert ? LoadReason::demand : LoadReason::certain;
  bool gave_way = false;
  for (; !bring(unit, tier, {reason, {}}); gave_way = true) residency_.give_way(unit, tier);
  return gave_way;
}

std::vector<WeightUnit> FragmentBuilder::requested(LayerId layer) const {
  return residency_.leased_of(expert_of(layer, ExpertId(0)).kind, layer);
}

Task FragmentBuilder::compute(Work work, const WeightUnit& unit, LayerId layer,
                              int32_t micro_batch) const {
  constexpr size_t kUsualReads = 4;
  Task task{.work = work,
            .unit = unit,
            .slot = residency_.slot(unit),
            .layer = layer,
            .micro_batch = micro_batch};
  task.reads.reserve(kUsualReads);
  task.reads.push_back({Place::slot, task.slot, unit.kind});
  return task;
}

void FragmentBuilder::embed(int32_t micro_batch) {
  Task task = compute(Work::embed, model_unit(), LayerId(0), micro_batch);
  task.writes = {{Place::hidden, micro_batch}};
  fragment_.push_back(std::move(task));
}

bool FragmentBuilder::comes_through_stage(int32_t micro_batch) const {
  return context_.group[static_cast<size_t>(micro_batch)].spilled &&
         !attends_elsewhere(micro_batch);
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
                       .lane = kv_in_lane(kComputeTier),
                       .layer = layer,
                       .micro_batch = micro_batch,
                       .stage = stage_of(micro_batch),
                       .reads = {{Place::kv, micro_batch}},
                       .writes = {{Place::stage, stage_of(micro_batch)}}});
}

void FragmentBuilder::store_kv(LayerId layer, int32_t micro_batch) {
  if (!context_.group[static_cast<size_t>(micro_batch)].spilled) return;
  fragment_.push_back({.work = Work::store_kv,
                       .lane = kv_out_lane(kComputeTier),
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

bool FragmentBuilder::attends_elsewhere(int32_t micro_batch) const {
  const MicroBatchShape& shape = context_.group[static_cast<size_t>(micro_batch)];
  return policy_.division.attends_elsewhere() && shape.spilled && shape.decodes;
}

// Buffers in the order in which attention begins, from layer to layer: with one buffer more than
// micro-batches that begin ahead, none is needed again before its results were used.
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

void FragmentBuilder::begin_attention_elsewhere(LayerId layer, int32_t micro_batch) {
  Task project = compute(Work::project, attention_unit(layer), layer, micro_batch);
  project.buffer = attention_buffer(layer, micro_batch);
  const auto buffer = [&](Place place) { return Resource{place, project.buffer}; };
  project.reads.push_back({Place::hidden, micro_batch});
  project.writes = {buffer(Place::queries)};
  const TierId there = policy_.division.decode_attention;
  const auto buffer_there = [&](Place place) {
    return Resource{.place = place, .number = project.buffer, .tier = there};
  };
  Task down = exchange(Work::queries_down, rows_lane(kComputeTier, there), layer, micro_batch);
  down.reads = {buffer(Place::queries)};
  down.writes = {buffer_there(Place::queries)};
  Task attention = exchange(Work::attention_on_cpu, compute_lane(there), layer, micro_batch);
  attention.bytes = 0;
  attention.reads = {buffer_there(Place::queries)};
  attention.writes = {{Place::kv, micro_batch}, buffer_there(Place::attended)};
  for (Task* task : {&project, &down, &attention}) fragment_.push_back(std::move(*task));
}

void FragmentBuilder::attended_up(LayerId layer, int32_t micro_batch) {
  const TierId there = policy_.division.decode_attention;
  Task task = exchange(Work::attended_up, rows_lane(there, kComputeTier), layer, micro_batch);
  task.reads = {{.place = Place::attended, .number = task.buffer, .tier = there}};
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
  if (!policy_.layout.source_of(kComputeTier)) return false;
  const std::array<int64_t, kUnitKinds> most = most_units_of_layer(context_.model);
  for (size_t k = 0; k < kUnitKinds; ++k) {
    int64_t slots = policy_.layout.compute().slots[k];
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
  const TierId source = policy_.layout.compute().source;
  for (const PagePiece& piece : page) fetch(piece.unit, source, {});
}

void FragmentBuilder::load_page(const std::vector<PagePiece>& page) {
  for (const PagePiece& piece : page) {
    link_bytes_ += piece.bytes;
    Task load{.work = Work::load,
              .unit = piece.unit,
              .slot = residency_.slot(piece.unit),
              .layer = piece.unit.layer,
              .offset = piece.offset,
              .bytes = piece.bytes,
              .partial = piece.bytes < context_.facts(piece.unit).own_bytes};
    come_from_source(load, {});
    // The first part waits for all uses of the slot's former unit, the other parts for the first.
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

// The places that an expert on the compute tier reads and writes besides its weights.
void FragmentBuilder::on_rows_of(Task& expert, int32_t micro_batch) const {
  const size_t batches = micro_batch == kWholeGroup ? context_.group.size() : 1;
  expert.reads.reserve(expert.reads.size() + 2 * batches);
  expert.fills.reserve(batches);
  for (int32_t k = 0; k < micro_batches(); ++k) {
    if (micro_batch != kWholeGroup && micro_batch != k) continue;
    expert.reads.push_back({Place::normed, k});
    expert.reads.push_back({Place::routing, k});
    expert.fills.push_back({Place::outputs, k});  // the rows and choices that are its own
  }
}

void FragmentBuilder::count_choices(LayerId layer, const std::vector<ExpertId>& experts) {
  for (const ExpertId expert : experts) {
    const int64_t rows = std::llround(context_.rows(expert));  // nearly whole in a simulation
    residency_.chosen(expert_of(layer, expert), std::max<int64_t>(1, rows));
  }
}

void FragmentBuilder::rows_to(TierId tier, LayerId layer) {
  Task task{
      .work = Work::rows_down,
      .lane = rows_lane(kComputeTier, tier),
      .layer = layer,
      .bytes = static_cast<uint64_t>(context_.group_rows() * context_.model.hidden) * sizeof(float),
      .reads = of_all_batches(Place::normed),
      .writes = {{.place = Place::normed, .tier = tier}}};
  for (const Resource& routing : of_all_batches(Place::routing)) task.reads.push_back(routing);
  fragment_.push_back(std::move(task));
}

// The slot of a tier from which a processor takes an expert that gates have chosen.
int32_t FragmentBuilder::slot_of_chosen(const WeightUnit& expert, TierId tier) {
  if (tier.kind != TierKind::compute) {
    return fetch(expert, tier, {LoadReason::demand, of_all_batches(Place::routing)});
  }
  need(expert, tier);
  return residency_.slot(expert, tier);
}

void FragmentBuilder::expert_at(TierId tier, LayerId layer, ExpertId expert, int64_t sliced) {
  const WeightUnit unit = expert_of(layer, expert);
  residency_.chosen(unit, 1);  // counts like a lease in the compute tier
  const int32_t slot = slot_of_chosen(unit, tier);
  fragment_.push_back(
      {.work = Work::expert_on_cpu,
       .lane = compute_lane(tier),
       .unit = unit,
       .tier = tier,
       .slot = slot,
       .layer = layer,
       .sliced = sliced,
       .reads = {{Place::slot, slot, unit.kind, tier}, {.place = Place::normed, .tier = tier}},
       .writes = {{.place = Place::results, .number = expert.value, .tier = tier}}});
  const double rows = context_.rows(expert) * static_cast<double>(context_.model.hidden);
  fragment_.push_back({.work = Work::rows_up,
                       .lane = rows_lane(tier, kComputeTier),
                       .unit = unit,
                       .layer = layer,
                       .bytes = static_cast<uint64_t>(rows) * sizeof(float),
                       .reads = {{.place = Place::results, .number = expert.value, .tier = tier}},
                       .writes = {{Place::results, expert.value}}});
  if (tier.kind == TierKind::compute) done(unit, tier);
}

void FragmentBuilder::expert_slice(LayerId layer, ExpertId expert, int64_t outputs) {
  const WeightUnit unit = expert_of(layer, expert);
  const auto width = static_cast<uint64_t>(context_.model.layer(layer).feed_forward.width);
  Task load{.work = Work::load,
            .unit = unit,
            .layer = layer,
            .bytes = context_.facts(unit).own_bytes / width * static_cast<uint64_t>(outputs),
            .sliced = outputs,
            .reason = LoadReason::demand,
            .writes = {{Place::slice, 0}},
            .after = of_all_batches(Place::routing)};
  come_from_source(load, {LoadReason::demand, load.after});
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
  task.reads.push_back({Place::results, expert.value});
  if (sliced > 0) task.reads.push_back({Place::slice_outputs, 0});  // added to these
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
