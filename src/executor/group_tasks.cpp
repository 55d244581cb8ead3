#include "executor/group_tasks.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

namespace {

// Of the weights of experts that run in one call. With much less, waking threads and waiting for
// them would show; with more, the first expert's slot would be held, and its buffer given back,
// later than need be: all of a call are done together.
constexpr uint64_t kJoinedBytes = uint64_t{64} << 20;

int64_t most_choices(const ModelDescription& model) {
  int64_t most = 1;
  for (const Layer& layer : model.layers) {
    if (layer.feed_forward.routed) {
      most = std::max<int64_t>(most, layer.feed_forward.router.top_k);
    }
  }
  return most;
}

}  // namespace

uint64_t activation_bytes(const ModelDescription& model, const Policy& policy, int64_t logit_rows) {
  int64_t attention_width = 0;
  int64_t query_width = 0;
  int64_t head_dim = 0;
  int64_t expert_width = 0;
  int64_t shared_width = 0;
  for (const Layer& layer : model.layers) {
    const Attention& shape = layer.attention;
    attention_width = std::max(attention_width, 2 * shape.query_width() + 2 * shape.kv_width());
    query_width = std::max(query_width, shape.query_width());
    head_dim = std::max<int64_t>(head_dim, shape.head_dim);
    expert_width = std::max(expert_width, layer.feed_forward.width);
    if (layer.feed_forward.shared) {
      shared_width = std::max(shared_width, layer.feed_forward.shared->width);
    }
  }
  const int64_t group = policy.group_rows() * model.hidden * (2 + most_choices(model));
  const int64_t attention = policy.micro_batch_rows * (attention_width + 2 * model.hidden);
  const int64_t logits = logit_rows * (model.vocabulary + model.hidden);
  const int64_t floats = group + attention + logits;
  return static_cast<uint64_t>(floats) * sizeof(float) +
         cpu_scratch_bytes(policy.group_rows(), std::max(model.hidden, query_width),
                           std::max(expert_width, shared_width), head_dim);
}

GroupTasks::GroupTasks(const Arithmetic& with, WeightSlots& slots, PagedKvCache& cache,
                       const Policy& policy, Tier& compute_tier)
    : with_(with), slots_(slots), cache_(cache), most_choices_(most_choices(with.model)) {
  if (policy.kv_stages == 0) return;
  stage_buffers_.emplace(compute_tier, "KV staging", policy.kv_stages, policy.kv_stage_bytes);
  for (int64_t i = 0; i < policy.kv_stages; ++i) stages_.emplace_back(stage_buffers_->buffer(i));
}

void GroupTasks::begin(std::span<const MicroBatch> group) {
  members_.clear();
  int64_t rows = 0;
  for (const MicroBatch& micro_batch : group) {
    members_.push_back(
        {.micro_batch = &micro_batch, .first_row = rows, .routing = {}, .chosen_at = {}});
    rows += micro_batch.batch.rows();
  }
  if (rows == hidden_.rows().count) return;
  const int64_t width = with_.model.hidden;
  hidden_ = Buffer(0, 0);  // gives its memory back before more is taken
  normed_ = Buffer(0, 0);
  outputs_ = Buffer(0, 0);
  outputs_ = Buffer(rows * most_choices_, width);
  normed_ = Buffer(rows, width);
  hidden_ = Buffer(rows, width);  // last: its size says that all are there
}

bool GroupTasks::may_join(std::span<const Task* const> together, const Task& next) const {
  const Task& first = *together[0];
  if (first.work != Work::expert || next.work != Work::expert) return false;
  if (first.layer != next.layer || first.micro_batch != next.micro_batch) return false;
  return (together.size() + 1) * slots_.slot_bytes(next.unit.kind) <= kJoinedBytes;
}

void GroupTasks::run(std::span<const Task* const> tasks) {
  const Task& task = *tasks[0];
  switch (task.work) {
    case Work::load:
      return slots_.load(task.unit, task.slot);
    case Work::settle:
      return slots_.settle(task.unit, task.slot);
    case Work::embed:
      return embed(task);
    case Work::attention:
      return attention(task);
    case Work::gate:
      return gate(task);
    case Work::expert:
      return experts(tasks);
    case Work::combine:
      return combine(task);
    case Work::logits:
      return compute_logits(task);
    case Work::load_kv:
      return load_kv(task);
    case Work::store_kv:
      return store_kv(task);
  }
}

std::span<const ExpertId> GroupTasks::choices(int32_t micro_batch) const {
  return members_[static_cast<size_t>(micro_batch)].routing->experts;
}

std::span<const float> GroupTasks::router_gaps(int32_t micro_batch) const {
  return members_[static_cast<size_t>(micro_batch)].routing->gaps;
}

Rows GroupTasks::logits() { return logits_->rows(); }

Rows GroupTasks::rows_of(Buffer& rows, const Member& member) const {
  return {rows.rows().row(member.first_row), member.micro_batch->batch.rows(), rows.rows().width};
}

KvStage* GroupTasks::stage(const Task& task) {
  return task.stage < 0 ? nullptr : &stages_[static_cast<size_t>(task.stage)];
}

void GroupTasks::embed(const Task& task) {
  const Member& here = member(task);
  klotski::embed(with_, rows_of(hidden_, here), slots_.weights(task.unit, task.slot),
                 here.micro_batch->batch.tokens);
}

void GroupTasks::attention(const Task& task) {
  const Member& here = member(task);
  const Batch& batch = here.micro_batch->batch;
  const WeightSet weights = slots_.weights(task.unit, task.slot);
  const Rows hidden = rows_of(hidden_, here);
  AttentionInputs inputs = pre_attention(with_, hidden, weights, task.layer, batch);
  Buffer attended(hidden.count, inputs.queries.rows().width);
  std::vector<KvView> views;
  views.reserve(batch.sequences.size());  // the arguments point into them
  std::vector<AttendingSequence> sequences;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    const KvSequence& sequence = *here.micro_batch->sequences[i];
    cache_.write(sequence, task.layer, rows.past, inputs.keys.rows(rows), inputs.values.rows(rows),
                 stage(task));
    views.push_back(cache_.pages(sequence, task.layer, stage(task)));
    sequences.push_back(
        {attended.rows(rows), inputs.queries.rows(rows), views.back().pages(), rows.past});
  }
  klotski::attention(with_, sequences, weights, task.layer);
  post_attention(with_, hidden, attended.rows(), weights);
}

void GroupTasks::gate(const Task& task) {
  Member& here = member(task);
  here.routing = route(with_, rows_of(normed_, here), rows_of(hidden_, here),
                       slots_.weights(task.unit, task.slot), task.layer);
  here.chosen_at.assign(static_cast<size_t>(with_.model.layer(task.layer).feed_forward.experts),
                        {});
  for (size_t i = 0; i < here.routing->experts.size(); ++i) {
    const auto expert = static_cast<size_t>(here.routing->experts[i].value);
    here.chosen_at[expert].push_back(static_cast<int32_t>(i));
  }
}

// The results wait in the place of their row and choice, so that the sum in combine() does not
// depend on the order in which experts ran.
void GroupTasks::experts(std::span<const Task* const> tasks) {
  std::vector<ChosenExpert> chosen;
  chosen.reserve(tasks.size());
  for (const Task* task : tasks) chosen.push_back(chosen_expert(*task));
  run_experts(with_, outputs_.rows(), normed_.rows(), chosen, tasks[0]->layer);
}

ChosenExpert GroupTasks::chosen_expert(const Task& task) {
  ChosenExpert chosen{
      .weights = slots_.expert(task.unit, task.slot), .in_rows = {}, .out_rows = {}};
  for (size_t k = 0; k < members_.size(); ++k) {
    if (task.micro_batch != kWholeGroup && static_cast<size_t>(task.micro_batch) != k) continue;
    const Member& here = members_[k];
    for (const int32_t at : here.chosen_at[static_cast<size_t>(task.unit.expert.value)]) {
      chosen.in_rows.push_back(static_cast<int32_t>(here.first_row + at / here.routing->slots));
      chosen.out_rows.push_back(static_cast<int32_t>(first_output(here) + at));
    }
  }
  return chosen;
}

void GroupTasks::combine(const Task& task) {
  const Member& here = member(task);
  const Rows hidden = rows_of(hidden_, here);
  const Routing& routing = *here.routing;
  const Rows outputs = {outputs_.rows().row(first_output(here)), hidden.count * routing.slots,
                        hidden.width};
  with_.ops.combine(hidden, outputs, routing.weights);
  add_shared_expert(with_, hidden, rows_of(normed_, here), slots_.weights(task.unit, task.slot),
                    task.layer);
}

void GroupTasks::compute_logits(const Task& task) {
  const Member& here = member(task);
  const std::vector<int32_t> wanted = here.micro_batch->batch.logit_rows();
  logits_.reset();
  logits_.emplace(static_cast<int64_t>(wanted.size()), with_.model.vocabulary);
  klotski::logits(with_, logits_->rows(), rows_of(hidden_, here),
                  slots_.weights(task.unit, task.slot), wanted);
}

void GroupTasks::load_kv(const Task& task) {
  cache_.load(*stage(task), member(task).micro_batch->sequences, task.layer);
}

void GroupTasks::store_kv(const Task& task) { cache_.store(*stage(task)); }

}  // namespace klotski
