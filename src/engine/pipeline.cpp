#include "engine/pipeline.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

// Hands fragments to the executor and waits for gates where the schedule has to know their choice.
class Pipeline::Sink : public TaskSink {
 public:
  explicit Sink(Pipeline& pipeline)
      : pipeline_(pipeline), gates_(static_cast<size_t>(pipeline.group_size_), -1) {}

  void submit(Fragment fragment) override {
    std::vector<std::pair<size_t, int32_t>> gates;  // place in the fragment, micro-batch
    for (size_t i = 0; i < fragment.size(); ++i) {
      if (fragment[i].work == Work::gate) gates.emplace_back(i, fragment[i].micro_batch);
    }
    const auto size = static_cast<int64_t>(fragment.size());
    const TaskNumber last = pipeline_.executor_.submit(std::move(fragment));
    for (const auto& [place, micro_batch] : gates) {
      gates_[static_cast<size_t>(micro_batch)] = last - size + 1 + static_cast<int64_t>(place);
    }
  }

  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    if (!pipeline_.model_.layer(layer).feed_forward.routed) return {ExpertId(0)};
    pipeline_.executor_.wait(gates_[static_cast<size_t>(micro_batch)]);
    return pipeline_.chosen(layer, micro_batch);
  }

 private:
  Pipeline& pipeline_;
  std::vector<TaskNumber> gates_;  // by micro-batch, of the layer at hand
};

Pipeline::Pipeline(const ModelDescription& model, const Checkpoint& checkpoint,
                   const UnitLayouts& layouts, const Policy& policy, Tier& compute_tier,
                   const Ops& ops, const PipelineOptions& options)
    : model_(model),
      layouts_(layouts),
      policy_(policy),
      timeline_(options.keep_spans),
      cache_(model,
             {.type = kv_type(policy.precision),
              .memory_bytes = policy.kv_bytes,
              .spill_bytes = policy.kv_spill_bytes,
              .spill_folder = options.spill_folder,
              .streaming = {policy.attention_sinks, policy.attention_window}},
             *options.spill_calls),
      slots_(checkpoint, layouts, policy, compute_tier, ops, options.disk),
      residency_(model, policy_),
      hot_experts_(model, policy.hot_experts, policy.path_length),
      tasks_({model, ops, policy.precision, options.router_gaps}, slots_, cache_, policy_,
             compute_tier),
      schedule_(make_schedule(policy.strategy)),
      executor_([this](Executor::Tasks tasks) { tasks_.run(tasks); },
                [this](Executor::Tasks together, const Task& next) {
                  return tasks_.may_join(together, next);
                },
                [this](const Task& task, const TimelineSpan& span) { audit_.observe(task, span); },
                timeline_, options.executor) {}

Known Pipeline::known(std::span<const MicroBatch> group) {
  Known known{.model = model_,
              .group = {},
              .facts = [this](const WeightUnit& unit) { return facts_of(layouts_, unit); },
              .hot = [this](LayerId layer) { return hot_experts_.foretell(layer); }};
  for (const MicroBatch& micro_batch : group) {
    const bool spilled =
        std::any_of(micro_batch.sequences.begin(), micro_batch.sequences.end(),
                    [](const KvSequence* sequence) { return sequence->spilled(); });
    known.group.push_back({.spilled = spilled});
  }
  return known;
}

std::vector<ExpertId> Pipeline::chosen(LayerId layer, int32_t micro_batch) {
  const std::span<const ExpertId> choices = tasks_.choices(micro_batch);
  std::vector<ExpertId> experts(choices.begin(), choices.end());
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  if (micro_batch + 1 == group_size_) learn(layer);
  return experts;
}

void Pipeline::learn(LayerId layer) {
  std::vector<ExpertId> choices;
  std::vector<float>& gaps = router_gaps_.emplace_back();
  for (int32_t k = 0; k < group_size_; ++k) {
    const std::span<const ExpertId> of_batch = tasks_.choices(k);
    choices.insert(choices.end(), of_batch.begin(), of_batch.end());
    const std::span<const float> gaps_of_batch = tasks_.router_gaps(k);
    gaps.insert(gaps.end(), gaps_of_batch.begin(), gaps_of_batch.end());
  }
  hot_experts_.learn(layer, choices);
}

void Pipeline::forward(std::span<const MicroBatch> group, const TakeLogits& take) {
  // A load that was made ahead of this pass may have failed long ago: that is no reason for this
  // pass to fail, which asks for the unit again.
  if (executor_.failed()) start_clean();
  try {
    run(group, take);
  } catch (...) {
    start_clean();
    throw;
  }
}

void Pipeline::start_clean() {
  executor_.recover();
  residency_.forget_everything();
}

void Pipeline::run(std::span<const MicroBatch> group, const TakeLogits& take) {
  int64_t rows = 0;
  for (const MicroBatch& micro_batch : group) rows += micro_batch.batch.rows();
  group_size_ = static_cast<int32_t>(group.size());
  tasks_.begin(group);
  hot_experts_.begin_pass(rows);
  router_gaps_.clear();
  executor_.set_step(passes_);
  FragmentBuilder build(policy_, residency_, known(group));
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
}

PipelineReport Pipeline::report() const {
  return {.totals = timeline_.totals(),
          .passes = passes_,
          .tokens = tokens_,
          .experts = residency_.counters(UnitKind::expert),
          .prefetch = audit_.bytes(),
          .accuracy = hot_experts_.accuracy()};
}

}  // namespace klotski
