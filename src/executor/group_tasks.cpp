#include "executor/group_tasks.h"

#include <algorithm>

#include "model/counts.h"

namespace klotski {

GroupTasks::GroupTasks(const Arithmetic& with, WeightSlots& slots, PagedKvCache& cache,
                       const Policy& policy, const ComputeMemory& memory,
                       const RecordedRouting* recorded)
    : with_(with),
      slots_(slots),
      cache_(cache),
      policy_(policy),
      recorded_(recorded),
      all_experts_in_host_slots_(policy.layout.host() &&
                                 policy.layout.host()->slots[index_of(UnitKind::expert)] >=
                                     std::ssize(units_of(with.model, UnitKind::expert))),
      most_choices_(most_choices(with.model)) {
  if (policy.division.shared_rows > 0) {
    cpu_experts_.emplace(Arithmetic{with.model, *memory.cpu, with.precision}, slots, memory,
                         policy.division.shared_rows);
  }
  if (policy.division.attends_elsewhere()) {
    cpu_attention_.emplace(Arithmetic{with.model, *memory.cpu, with.precision}, cache, memory,
                           policy.group.micro_batch);
  }
  if (policy.layout.kv_stages == 0) return;
  stage_buffers_.emplace(
      memory.pool("KV staging", policy.layout.kv_stages, policy.layout.kv_stage_bytes));
  for (int64_t i = 0; i < policy.layout.kv_stages; ++i)
    stages_.emplace_back(stage_buffers_->buffer(i));
}

void GroupTasks::begin(std::span<const MicroBatch> group) {
  members_.clear();
  int64_t rows = 0;
  for (const MicroBatch& micro_batch : group) {
    members_.push_back({.micro_batch = micro_batch, .first_row = rows});
    rows += micro_batch.batch.rows();
  }
  sorted_.reset();
  logits_.reset();
  if (rows != rows_) place_rows(rows);
  if (cpu_experts_ && rows <= policy_.division.shared_rows) cpu_experts_->begin(rows, normed_.data);
}

// Places the rows of a group. The normed rows come last: results of the CPU's experts arrive behind
// the rows that they are computed from.
void GroupTasks::place_rows(int64_t rows) {
  rows_ = 0;
  const int64_t width = with_.model.hidden;
  hidden_ = {memory_of_rows(rows), rows, width};
  outputs_ = {hidden_.row(rows), rows * most_choices_, width};
  normed_ = {outputs_.row(outputs_.count), rows, width};
  rows_ = rows;
}

// Lent slots hold the rows first, and behind them all else that is computed with.
float* GroupTasks::memory_of_rows(int64_t rows) {
  const int64_t lent = policy_.layout.slots_lent_to(rows);
  if (lent == 0) {
    with_.ops.memory.lend({});
    return own_rows(rows);
  }
  const std::span<std::byte> slots = slots_.last_expert_slots(lent);
  with_.ops.memory.lend(slots.subspan(group_row_bytes(with_.model, policy_, rows)));
  return reinterpret_cast<float*>(slots.data());
}

// Memory of the rows, taken once for the largest possible group. If it were given back between
// groups, pieces taken meanwhile could lie in its way.
float* GroupTasks::own_rows(int64_t rows) {
  const auto floats = [&](int64_t of) {
    return static_cast<int64_t>(group_row_bytes(with_.model, policy_, of) / sizeof(float));
  };
  if (!own_rows_ || own_rows_->size() < floats(rows)) {
    own_rows_.reset();  // gives its memory back before more is taken
    own_rows_.emplace(with_.ops, floats(std::max(rows, policy_.most_own_rows())));
  }
  return own_rows_->span().data();
}

std::span<const ExpertId> GroupTasks::choices(int32_t micro_batch) const {
  return members_[static_cast<size_t>(micro_batch)].routing->chosen;
}

std::span<const float> GroupTasks::router_gaps(int32_t micro_batch) const {
  return members_[static_cast<size_t>(micro_batch)].routing->chosen_gaps;
}

std::span<const float> GroupTasks::router_weights(int32_t micro_batch) const {
  return members_[static_cast<size_t>(micro_batch)].routing->chosen_weights;
}

Rows GroupTasks::logits() {
  const Rows rows = logits_->rows();
  return with_.ops.memory.readable ? rows : Rows{read_logits_.data(), rows.count, rows.width};
}

Rows GroupTasks::rows_of(Rows rows, const Member& member) const {
  return {rows.row(member.first_row), member.micro_batch.batch.rows(), rows.width};
}

KvStage* GroupTasks::stage(const Task& task) {
  return task.stage < 0 ? nullptr : &stages_[static_cast<size_t>(task.stage)];
}

void GroupTasks::embed(const Task& task) {
  const Member& here = member(task);
  klotski::embed(with_, rows_of(hidden_, here), slots_.weights(task.unit, task.slot),
                 here.micro_batch.batch.tokens, here.micro_batch.batch.positions);
}

void GroupTasks::attention(const Task& task) {
  Member& here = member(task);
  const WeightSet weights = slots_.weights(task.unit, task.slot);
  const Rows hidden = rows_of(hidden_, here);
  AttentionOf attention{.micro_batch = here.micro_batch,
                        .layer = task.layer,
                        .inputs = {},
                        .attended = hidden,
                        .stage = stage(task)};
  if (here.micro_batch.batch.encodes() && task.layer.value >= with_.model.encoder_layers()) {
    const Attending encoded(cache_, attention);
    return keep_encoded(with_, hidden, encoded.sequences(), weights, task.layer);
  }
  self_attention(here, attention, weights);
  if (!with_.model.encoder) return;
  const Attending attending(cache_, attention);
  cross_attention(with_, hidden, attending.sequences(), weights, task.layer);
}

void GroupTasks::self_attention(Member& of, AttentionOf attention, const WeightSet& weights) {
  const Rows hidden = rows_of(hidden_, of);
  const LayerId layer = attention.layer;
  norm_beside_attention(with_, rows_of(normed_, of), hidden, weights, layer);
  AttentionInputs inputs = pre_attention(with_, hidden, weights, layer, rotation(of));
  Buffer attended(with_.ops, hidden.count, with_.model.layer(layer).attention.output_width());
  attention.inputs = inputs.rows();
  attention.attended = attended.rows();
  attend(with_, cache_, weights, attention);
  post_attention(with_, hidden, attended.rows(), weights, layer);
}

// The device's part of attention that the CPU computes: before it, and after it.
void GroupTasks::project(const Task& task) {
  Member& here = member(task);
  const WeightSet weights = slots_.weights(task.unit, task.slot);
  cpu_attention_->keep_weights(task.layer, weights, with_.ops.memory);
  norm_beside_attention(with_, rows_of(normed_, here), rows_of(hidden_, here), weights, task.layer);
  pre_attention(with_, cpu_attention_->inputs_on_device(task, rows_of(task)),
                rows_of(hidden_, here), weights, task.layer, rotation(here));
}

const Rotation& GroupTasks::rotation(Member& of) {
  if (!of.rotation) of.rotation = rotation_of(with_, of.micro_batch.batch);
  return *of.rotation;
}

void GroupTasks::project_back(const Task& task) {
  post_attention(with_, rows_of(hidden_, member(task)),
                 cpu_attention_->attended_on_device(task, rows_of(task)),
                 slots_.weights(task.unit, task.slot), task.layer);
}

void GroupTasks::gate(const Task& task) {
  Member& here = member(task);
  here.routing =
      route(with_, rows_of(normed_, here), rows_of(hidden_, here),
            slots_.weights(task.unit, task.slot), task.layer, recorded_choices(here, task.layer));
  sorted_.reset();
}

// [row][top_k]; empty where the gates choose.
std::vector<ExpertId> GroupTasks::recorded_choices(const Member& of, LayerId layer) const {
  std::vector<ExpertId> choices;
  if (!recorded_ || !with_.model.layer(layer).feed_forward.routed) return choices;
  for (size_t i = 0; i < of.micro_batch.sequences.size(); ++i) {
    const BatchSequence& rows = of.micro_batch.batch.sequences[i];
    for (int64_t position = rows.past; position < rows.past + rows.tokens; ++position) {
      const int64_t sequence = of.micro_batch.sequences[i]->number() - 1;
      for (const uint16_t expert : recorded_->choices(sequence, position, layer)) {
        choices.emplace_back(expert);
      }
    }
  }
  return choices;
}

// The results wait in the place of their row and choice, so that the sum in combine() does not
// depend on the order in which experts ran.
void GroupTasks::experts(Tasks tasks) {
  std::vector<ChosenExpert> chosen;
  chosen.reserve(tasks.size());
  for (const Task* task : tasks) {
    slots_.await_load(*task);
    chosen.push_back(chosen_expert(*task));
  }
  run_experts(with_, outputs_, normed_, chosen, tasks[0]->layer);
}

ChosenExpert GroupTasks::chosen_expert(const Task& task) {
  const SortedChoices& choices = sorted(task);
  const auto expert = static_cast<size_t>(task.unit.expert.value);
  const size_t begin = choices.begin[expert];
  const size_t count = choices.begin[expert + 1] - begin;
  std::span<const float> scales = choices.scales.span();
  if (!scales.empty()) scales = scales.subspan(begin, count);
  return {.weights = task.sliced > 0 ? slots_.expert_slice(task.unit, task.sliced)
                                     : slots_.expert(task.unit, task.slot),
          .in_rows = choices.in_rows.span().subspan(begin, count),
          .out_rows = choices.out_rows.span().subspan(begin, count),
          .in_scales = scales};
}

// The choices of the gates, sorted once for all experts of the layer.
const GroupTasks::SortedChoices& GroupTasks::sorted(const Task& task) {
  if (sorted_ && sorted_->micro_batch == task.micro_batch) return *sorted_;
  const int64_t experts = with_.model.layer(task.layer).feed_forward.experts;
  std::vector<RoutedRows> parts;
  std::vector<RoutedRows> readable;  // the choices in the program's memory
  for (size_t k = 0; k < members_.size(); ++k) {
    if (task.micro_batch != kWholeGroup && static_cast<size_t>(task.micro_batch) != k) continue;
    const Member& here = members_[k];
    parts.push_back(routed_rows(here, here.routing->experts.span(), here.routing->scales.span()));
    readable.push_back(routed_rows(here, here.routing->chosen, {}));
  }
  std::vector<size_t> begin = begin_by_expert(readable, experts);
  const auto choices = static_cast<int64_t>(begin.back());
  const bool scaled = with_.model.layer(task.layer).feed_forward.scales_inputs;
  sorted_.reset();
  sorted_.emplace(SortedChoices{.micro_batch = task.micro_batch,
                                .in_rows = List<int32_t>(with_.ops, choices),
                                .out_rows = List<int32_t>(with_.ops, choices),
                                .scales = List<float>(with_.ops, scaled ? choices : 0),
                                .begin = std::move(begin)});
  with_.ops.sort_by_expert(parts, experts, sorted_->in_rows.span(), sorted_->out_rows.span(),
                           sorted_->scales.span());
  return *sorted_;
}

// `experts`, `scales`: the member's choices, in the memory of the caller's processor.
RoutedRows GroupTasks::routed_rows(const Member& of, std::span<const ExpertId> experts,
                                   std::span<const float> scales) const {
  return {.experts = experts,
          .top_k = of.routing->top_k,
          .first_row = of.first_row,
          .first_output = first_output(of),
          .scales = scales};
}

// Nothing asks for the choices of a layer that is not routed, so that the routing may be a later
// gate's by now, whose choices are still on their way.
void GroupTasks::take_choices(const Task& task) {
  if (with_.model.layer(task.layer).feed_forward.routed) read_choices(*member(task).routing);
}

void GroupTasks::queries_down(const Task& task) {
  cpu_attention_->queries_down(task, rows_of(task));
}

void GroupTasks::attention_on_cpu(const Task& task) {
  cpu_attention_->run(task, member(task).micro_batch);
}

void GroupTasks::attended_up(const Task& task) { cpu_attention_->attended_up(task, rows_of(task)); }

void GroupTasks::rows_down(const Task& task) {
  begin_rows_down(task);
  finish_rows_down(task);
}

// The copy waits for all operations up to the latest gate. Some of these operations may be later
// than those that write the rows, but none of them waits for the copy: an operation waits for
// results of the CPU only after the CPU has begun to compute them.
void GroupTasks::begin_rows_down(const Task&) {
  cpu_experts_->begin_rows_down(with_.ops.memory, gated_);
}

void GroupTasks::finish_rows_down(const Task& task) {
  std::vector<RoutedRows> parts;
  for (const Member& here : members_) {
    parts.push_back(routed_rows(here, here.routing->chosen, here.routing->chosen_scales));
  }
  cpu_experts_->finish_rows_down(parts, task.layer);
}

void GroupTasks::rows_up(Tasks tasks) {
  begin_rows_up(tasks);
  finish_rows_up(tasks);
}

// Results of the CPU's experts lie expert by expert: each goes to the place of its row and choice,
// where the device's experts put their outputs. Results of a sliced expert are added to the
// device's part.
void GroupTasks::scatter(Tasks tasks) {
  const SortedChoices& choices = sorted(*tasks[0]);
  with_.ops.memory.wait_for_copies(cpu_experts_->way_up());
  for (const Task* task : tasks) {
    const ConstRows from = cpu_experts_->arrived(task->unit.expert);
    const size_t begin = choices.begin[static_cast<size_t>(task->unit.expert.value)];
    const auto rows = choices.out_rows.span().subspan(begin, static_cast<size_t>(from.count));
    if (task->sliced > 0) {
      with_.ops.scatter_add(outputs_, from, rows);
    } else {
      with_.ops.scatter(outputs_, from, rows);
    }
  }
}

void GroupTasks::combine(const Task& task) {
  const Member& here = member(task);
  const Rows hidden = rows_of(hidden_, here);
  const Routing& routing = *here.routing;
  const Rows outputs = {outputs_.row(first_output(here)), hidden.count * routing.top_k,
                        hidden.width};
  add_shared_expert(with_, hidden, rows_of(normed_, here), slots_.weights(task.unit, task.slot),
                    task.layer);
  with_.ops.combine(hidden, outputs, routing.weights.span());
}

void GroupTasks::compute_logits(const Task& task) {
  const Member& here = member(task);
  const std::vector<int32_t> wanted = here.micro_batch.batch.logit_rows();
  logits_.reset();
  logits_.emplace(with_.ops, static_cast<int64_t>(wanted.size()), with_.model.vocabulary);
  klotski::logits(with_, logits_->rows(), rows_of(hidden_, here),
                  slots_.weights(task.unit, task.slot), wanted);
  if (here.micro_batch.only_most_likely) {
    List<TokenId> tokens(with_.ops, static_cast<int64_t>(wanted.size()));
    with_.ops.most_likely(tokens.span(), logits_->rows());
    most_likely_ = tokens.download();
  } else if (!with_.ops.memory.readable) {
    read_logits_ = logits_->download();
  }
}

void GroupTasks::load_kv(const Task& task) {
  cache_.load(*stage(task), member(task).micro_batch.sequences, task.layer);
}

void GroupTasks::store_kv(const Task& task) { cache_.store(*stage(task)); }

}  // namespace klotski
