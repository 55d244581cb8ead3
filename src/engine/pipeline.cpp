#include "engine/pipeline.h"

#include <algorithm>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "memory/device_spill.h"
#include "schedule/preload.h"

namespace klotski {

// Hands fragments to the executor and waits for gates where the schedule has to know their choice.
class Pipeline::Sink : public TaskSink {
 public:
  explicit Sink(Pipeline& pipeline)
      : pipeline_(pipeline), gates_(static_cast<size_t>(pipeline.group_size_), -1) {}

  void submit(Fragment fragment) override {
    std::vector<std::pair<size_t, int32_t>> gates;         // place in the fragment, micro-batch
    std::vector<std::pair<int64_t, GuessedUnit>> guesses;  // place in the fragment, in its order
    for (size_t i = 0; i < fragment.size(); ++i) {
      const Task& task = fragment[i];
      if (task.work == Work::gate) gates.emplace_back(i, task.micro_batch);
      if (!is_guess(task)) continue;
      guesses.emplace_back(i, GuessedUnit(task.unit, task.tier));
      if (task.work != Work::settle) pipeline_.guesses_.erase(guesses.back().second);
    }
    const auto size = static_cast<int64_t>(fragment.size());
    const TaskNumber last = pipeline_.executor_.submit(std::move(fragment));
    for (const auto& [place, micro_batch] : gates) {
      gates_[static_cast<size_t>(micro_batch)] = last - size + 1 + static_cast<int64_t>(place);
    }
    for (const auto& [place, unit] : guesses) {
      pipeline_.guesses_[unit].push_back(last - size + 1 + place);
    }
  }

  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    if (!pipeline_.model_.layer(layer).feed_forward.routed) return {ExpertId(0)};
    pipeline_.executor_.wait(gates_[static_cast<size_t>(micro_batch)]);
    return pipeline_.chosen(layer, micro_batch);
  }

  void layer_submitted(LayerId) override { pipeline_.observe_choices(); }

  bool withdraw(const WeightUnit& unit, TierId tier) override {
    const auto guess = pipeline_.guesses_.find({unit, tier});
    if (guess == pipeline_.guesses_.end()) return false;
    const std::vector<TaskNumber> tasks = std::move(guess->second);
    pipeline_.guesses_.erase(guess);
    return pipeline_.executor_.withdraw(tasks);
  }

 private:
  Pipeline& pipeline_;
  std::vector<TaskNumber> gates_;  // last gate of each micro-batch, in the layer at hand
};

namespace {

// Pages and states share the memory that is planned for caches.
KvLimits kv_limits(const Policy& policy, const ComputeMemory& memory,
                   const PipelineOptions& options) {
  const TierMemory& planned = policy.layout.compute();
  KvLimits limits{
      .type = kv_type(policy.precision),
      .memory_bytes = planned.kv_bytes - planned.state_bytes,
      .spill_bytes = planned.kv_spill_bytes - planned.state_spill_bytes,
      .streaming = {policy.visible.sinks, policy.visible.window},
      .states = {.memory_bytes = planned.state_bytes, .spill_bytes = planned.state_spill_bytes}};
  if (memory.device) {
    std::byte* const caches = memory.device->take("KV cache", planned.kv_bytes).data();
    limits.states.memory = caches;  // first: states take whole lines, pages may leave a rest
    limits.memory = caches + planned.state_bytes;
    limits.spill_store = [&memory](uint64_t bytes) -> std::unique_ptr<SpillStore> {
      return std::make_unique<DeviceSpill>(memory.device->device(), *memory.host, bytes);
    };
  } else {
    limits.spill_store = [&options](uint64_t bytes) -> std::unique_ptr<SpillStore> {
      return std::make_unique<SpillFile>(options.spill_folder, bytes, *options.spill_calls);
    };
  }
  return limits;
}

static_assert(kMostComputations <= ProcessorMemory::kMostMarks);
// Choices, gaps, weights and scales.
static_assert(4 * kMostComputations <= ProcessorMemory::kMostLandings);

// Options with the lanes of the machine. With a device, tasks are short and many: where there are
// many processors, lane threads may spin on some of them.
ExecutorOptions for_machine(ExecutorOptions options, const ComputeMemory& memory) {
  constexpr int kSpareProcessors = 8;
  options.lanes = (memory.device ? device_over_host() : cpu_over_disk()).lanes();
  const bool given = options.look_before_sleep.count() > 0;
  if (memory.device && usable_cpus() >= kSpareProcessors && !given) {
    options.look_before_sleep = std::chrono::microseconds(200);
  }
  return options;
}

PredictorChoice with_routing(PredictorChoice choice,
                             std::shared_ptr<const RecordedRouting> recorded) {
  choice.recorded = std::move(recorded);
  return choice;
}

// Whether these tokens are the one that a sequence computes after its prompt, and drafts behind it.
bool decodes(const BatchSequence& rows) { return rows.tokens - rows.drafts == 1 && rows.past > 0; }

bool encodes(std::span<const MicroBatch> group) {
  return !group.empty() && group[0].batch.encodes();
}

MicroBatchShape shape_of(const MicroBatch& micro_batch) {
  MicroBatchShape shape{.rows = micro_batch.batch.rows(), .decodes = true};
  for (size_t i = 0; i < micro_batch.sequences.size(); ++i) {
    const BatchSequence& rows = micro_batch.batch.sequences[i];
    const bool spilled = micro_batch.sequences[i]->spilled();
    shape.spilled |= spilled;
    shape.decodes &= decodes(rows) && rows.drafts == 0 && spilled;
  }
  return shape;
}

std::vector<PassToken> tokens_of(std::span<const MicroBatch> group) {
  std::vector<PassToken> tokens;
  for (const MicroBatch& micro_batch : group) {
    for (size_t i = 0; i < micro_batch.sequences.size(); ++i) {
      const BatchSequence& rows = micro_batch.batch.sequences[i];
      for (int64_t row = rows.first_row; row < rows.first_row + rows.tokens; ++row) {
        tokens.push_back({.sequence = micro_batch.sequences[i]->number(),
                          .position = rows.past + row - rows.first_row,
                          .token = micro_batch.batch.tokens[static_cast<size_t>(row)],
                          .decodes = decodes(rows)});
      }
    }
  }
  return tokens;
}

}  // namespace

Pipeline::Pipeline(const ModelDescription& model, const TensorSource& checkpoint,
                   const UnitLayouts& layouts, const Policy& policy, const ComputeMemory& memory,
                   const Processor& ops, const PipelineOptions& options)
    : model_(model),
      layouts_(layouts),
      policy_(policy),
      recorded_routing_(options.recorded_routing),
      timeline_(options.keep_spans),
      source_(options.source ? options.source
                             : std::make_shared<DiskSource>(checkpoint, options.disk)),
      cache_(model, kv_limits(policy, memory, options)),
      slots_(*source_, layouts, policy, memory, ops),
      residency_(model, policy_),
      correlations_(routing_shape(model), policy.cache.path_length),
      predictor_choice_(with_routing(options.predictor, options.recorded_routing)),
      correlation_(std::make_unique<CorrelationPredictor>(correlations_)),
      own_predictor_(predictor_choice_.name == "correlation"
                         ? nullptr
                         : make_predictor(predictor_choice_, correlations_)),
      predictor_(own_predictor_ ? *own_predictor_ : *correlation_),
      sources_{.model = model,
               .rule = policy_.cache,
               .predictor = predictor_,
               .facts = [this](const WeightUnit& unit) { return facts_of(layouts_, unit); },
               .rows =
                   [this](ExpertId expert) {
                     return static_cast<double>(expert_rows_[static_cast<size_t>(expert.value)]);
                   }},
      prediction_audit_(correlations_.shape()),
      pace_(model, policy_, sources_.facts),
      follow_unjudged_(options.follow_unjudged),
      tasks_({model, ops, policy.precision, options.router_gaps}, slots_, cache_, policy_, memory,
             recorded_routing_.get()),
      schedule_(make_schedule(policy.strategy)),
      executor_({.run = [this](Executor::Tasks tasks) { tasks_.run(tasks); },
                 .may_join = [this](Executor::Tasks together,
                                    const Task& next) { return tasks_.may_join(together, next); },
                 .observe = [this](const Task& task,
                                   const TimelineSpan& span) { audit_.observe(task, span); },
                 .begin = [this](Executor::Tasks tasks) { tasks_.begin_ahead(tasks); },
                 .finish = [this](Executor::Tasks tasks) { tasks_.finish(tasks); }},
                timeline_, for_machine(options.executor, memory), lane_rules(memory)) {
  const int64_t expert_slots = policy_.layout.compute().slots[index_of(UnitKind::expert)];
  if (!properties_of(policy_.strategy).follows_predictor() || expert_slots == 0) return;
  const auto rule = [&] { return make_eviction_rule(policy_.cache.eviction, model.layer_count()); };
  trial_.emplace(expert_slots, rule, model.layer_count());
}

ScheduleContext Pipeline::context(std::span<const MicroBatch> group) {
  std::vector<MicroBatchShape> shapes;
  for (const MicroBatch& micro_batch : group) shapes.push_back(shape_of(micro_batch));
  ScheduleContext context = sources_.context(std::move(shapes));
  context.encodes = encodes(group);
  context.hot = [this](LayerId layer) {
    std::vector<ExpertId> hot = sources_.hot(layer);
    prediction_audit_.predicted(layer, hot);
    return hot;
  };
  context.loads_a_layer = pace_.pace().loads_a_layer();
  context.coming = [this] {
    return follows_predictor() ? coming_ : std::vector<LayerProbabilities>();
  };
  return context;
}

std::vector<ExpertId> Pipeline::chosen(LayerId layer, int32_t micro_batch) {
  // Marks instead of sorting: prompts make tens of thousands of choices, and the device waits.
  std::vector<bool> is_chosen(static_cast<size_t>(model_.layer(layer).feed_forward.experts));
  for (const ExpertId expert : tasks_.choices(micro_batch)) {
    is_chosen[static_cast<size_t>(expert.value)] = true;
  }
  std::vector<ExpertId> experts;
  for (size_t e = 0; e < is_chosen.size(); ++e) {
    if (is_chosen[e]) experts.emplace_back(static_cast<int64_t>(e));
  }
  if (micro_batch + 1 == group_size_) take_choices(layer);
  return experts;
}

void Pipeline::take_choices(LayerId layer) {
  std::vector<ExpertId>& choices = not_observed_.choices;
  not_observed_.layer = layer;
  std::vector<float>& gaps = router_gaps_.emplace_back();
  std::vector<float>& weights = router_weights_.emplace_back();
  for (int32_t k = 0; k < group_size_; ++k) {
    const std::span<const ExpertId> of_batch = tasks_.choices(k);
    choices.insert(choices.end(), of_batch.begin(), of_batch.end());
    const std::span<const float> gaps_of_batch = tasks_.router_gaps(k);
    gaps.insert(gaps.end(), gaps_of_batch.begin(), gaps_of_batch.end());
    const std::span<const float> weights_of_batch = tasks_.router_weights(k);
    weights.insert(weights.end(), weights_of_batch.begin(), weights_of_batch.end());
  }
  expert_rows_.assign(static_cast<size_t>(model_.layer(layer).feed_forward.experts), 0);
  for (const ExpertId expert : choices) ++expert_rows_[static_cast<size_t>(expert.value)];
  if (residency_.uses_expectations()) tell_choices(layer);
  if (trial_) trial_->chosen(layer, expert_rows_, pace_.pace());
}

// Tells the eviction rule, before the layer's experts get their slots, which experts were chosen,
// so that none of them leaves for another.
void Pipeline::tell_choices(LayerId layer) {
  LayerProbabilities certain{layer, {}};
  for (const int64_t rows : expert_rows_) certain.probability.push_back(rows > 0 ? 1.0 : 0.0);
  residency_.expect(certain);
}

// Lets the predictors learn from the layer's choices. Called once the layer's experts are on their
// way: the device waits for these, and learning takes time.
void Pipeline::observe_choices() {
  if (not_observed_.choices.empty()) return;
  prediction_audit_.chosen(not_observed_.layer, not_observed_.choices);
  correlation_->observe(not_observed_.layer, not_observed_.choices);
  if (own_predictor_) own_predictor_->observe(not_observed_.layer, not_observed_.choices);
  not_observed_.choices.clear();
  if (trial_ || residency_.uses_expectations()) tell_expectations(not_observed_.layer);
}

void Pipeline::tell_expectations(LayerId observed) {
  if (std::ssize(predictor_.tokens()) > kMostGuessedRows) return;
  coming_ = sources_.coming();
  const std::vector<double> in_next_pass = predictor_.next_pass_probabilities(observed);
  if (trial_) trial_->expected(observed, coming_, in_next_pass, pace_.pace());
  if (trial_ && !follows_predictor()) return residency_.expect_in_next_pass({observed, {}});
  for (const LayerProbabilities& expected : coming_) {
    if (expected.layer > observed) residency_.expect(expected);  // in this pass
  }
  residency_.expect_in_next_pass({observed, in_next_pass});
}

void Pipeline::end_sequence(const KvSequence& sequence) {
  correlation_->end_sequence(sequence.number());
  if (own_predictor_) own_predictor_->end_sequence(sequence.number());
}

void Pipeline::forward(std::span<const MicroBatch> group, const TakeLogits& take) {
  // A load that was made ahead of this pass may have failed long ago: that is no reason for this
  // pass to fail, which asks for the unit again.
  if (executor_.failed()) start_clean();
  if (cache_.abandoned()) {
    fail(ErrorKind::device_lost, "nothing is computed after a task that did not end in time");
  }
  try {
    run(group, take);
  } catch (...) {
    try {
      start_clean();
    } catch (...) {  // a task hangs, which uses the sequences
      cache_.abandon();
      throw;
    }
    throw;
  }
}

void Pipeline::start_clean() {
  executor_.recover();
  residency_.forget_everything();
  not_observed_.choices.clear();
  guesses_.clear();
}

void Pipeline::run(std::span<const MicroBatch> group, const TakeLogits& take) {
  int64_t rows = 0;
  for (const MicroBatch& micro_batch : group) rows += micro_batch.batch.rows();
  group_size_ = static_cast<int32_t>(group.size());
  lend_slots(rows);
  tasks_.begin(group);
  std::vector<PassToken> tokens = tokens_of(group);
  const LayerId first(model_.pass_layers(encodes(group)).first);
  if (own_predictor_) own_predictor_->begin_pass(tokens, first);
  correlation_->begin_pass(std::move(tokens), first);
  coming_.clear();
  if (follows_predictor()) {
    coming_ = sources_.coming();
    for (const LayerProbabilities& expected : coming_) residency_.expect(expected);
  }
  router_gaps_.clear();
  router_weights_.clear();
  executor_.set_step(passes_);
  FragmentBuilder build(policy_, residency_, context(group));
  Sink sink(*this);
  run_pass(*schedule_, build, sink);
  for (size_t k = 0; k < group.size(); ++k) {
    if (group[k].batch.logit_rows().empty()) continue;
    build.logits(static_cast<int32_t>(k));
    executor_.wait(executor_.submit(build.take()));
    take(k, tasks_.logits());
  }
  // Loads for the next pass may go on; everything that touches this group must be over.
  executor_.drain(/*loads_may_go_on=*/true);
  ++passes_;
  tokens_ += rows;
  pace_.pass_over(timeline_.totals(), rows);
  if (trial_) trial_->pass_over(rows <= kMostGuessedRows);
}

// Loads for this pass that went ahead may be on their way into slots that its rows take.
void Pipeline::lend_slots(int64_t rows) {
  const int64_t lent = policy_.layout.slots_lent_to(rows);
  if (lent == residency_.lent_slots()) return;
  executor_.drain(/*loads_may_go_on=*/false);
  residency_.lend_slots(lent);
}

void Pipeline::preload(const std::function<void(uint64_t done, uint64_t total)>& progress) {
  FragmentBuilder build(policy_, residency_, context({}));
  std::vector<Task> tasks;
  uint64_t total = 0;
  for_each_preloaded(model_, policy_, build, [&] {
    for (Task& task : build.take()) {
      total += task.bytes;
      tasks.push_back(std::move(task));
    }
  });
  std::vector<std::pair<TaskNumber, uint64_t>> numbers;
  for (Task& task : tasks) {
    const uint64_t bytes = task.bytes;
    numbers.emplace_back(executor_.submit({std::move(task)}), bytes);
  }
  uint64_t done = 0;
  for (const auto& [number, bytes] : numbers) {
    executor_.wait(number);
    progress(done += bytes, total);
  }
  executor_.drain(/*loads_may_go_on=*/false);
  executor_.restart_clock();
  preloaded_ = residency_.counters(UnitKind::expert);
}

PipelineReport Pipeline::report() const {
  return {.totals = timeline_.totals(),
          .passes = passes_,
          .tokens = tokens_,
          .drafts = drafts_,
          .experts = residency_.counters(UnitKind::expert) - preloaded_,
          .prefetch = audit_.bytes(),
          .predictor = predictor_choice_.name,
          .trial = trial_ ? std::optional(trial_->result()) : std::nullopt,
          .accuracy = prediction_audit_.accuracy()};
}

}  // namespace klotski
