#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/draft_budget.h"
#include "engine/prediction_audit.h"
#include "executor/disk_source.h"
#include "executor/executor.h"
#include "executor/group_tasks.h"
#include "executor/prefetch_audit.h"
#include "executor/weight_slots.h"
#include "experts/correlation_predictor.h"
#include "experts/prediction_trial.h"
#include "experts/predictor_choice.h"
#include "memory/spill_file.h"
#include "schedule/link_pace.h"
#include "schedule/pass.h"

namespace klotski {

struct PipelineOptions {
  ExecutorOptions executor;
  DiskReaderOptions disk;
  std::shared_ptr<UnitSource> source;  // weights; null: the checkpoint's files
  int64_t keep_spans = 0;              // spans kept for traces and drawings
  bool router_gaps = false;            // whether Pipeline::router_gaps() is filled
  // Choices that sequences follow in place of their gates', in the order in which the KV
  // cache numbers them; null: the gates choose.
  std::shared_ptr<const RecordedRouting> recorded_routing;
  // Follows the predictor from the first pass on, where the strategy follows one, without a trial.
  // For tests.
  bool follow_unjudged = false;
  PredictorChoice predictor;           // asked for the experts to bring ahead and to keep
  std::filesystem::path spill_folder;  // for keys and values beyond the compute tier
  SpillCalls* spill_calls = &SpillCalls::system();  // tests make it fail
};

// The work of a pipeline so far.
struct PipelineReport {
  TimelineTotals totals;
  int64_t passes = 0;
  int64_t tokens = 0;  // computed, prompts and accepted drafts included
  DraftCounts drafts;
  CacheCounters experts;  // hits and misses of requests for experts
  PrefetchBytes prefetch;
  std::string predictor;             // its name
  std::optional<TrialResult> trial;  // of a predictor that the strategy follows where it pays
  std::vector<LayerAccuracy> accuracy;
};

// A model whose weights come from disk as the schedule asks for them, within the policy's slots.
// A model that fits is the case of a slot for every unit: then each is read once.
class Pipeline {
 public:
  // All arguments given by reference must live longer.
  Pipeline(const ModelDescription& model, const TensorSource& checkpoint,
           const UnitLayouts& layouts, const Policy& policy, const ComputeMemory& memory,
           const Processor& ops, const PipelineOptions& options = {});

  const ModelDescription& description() const { return model_; }
  const Policy& policy() const { return policy_; }
  PagedKvCache& cache() { return cache_; }
  const PagedKvCache& cache() const { return cache_; }
  // The table by which experts are predicted; it learns from every pass.
  CorrelationTable& correlations() { return correlations_; }
  // Predicts for the schedule; passes teach it.
  const ExpertPredictor& predictor() const { return predictor_; }
  // The experts that the last pass's rows chose.
  const GroupChoices& choices() const { return predictor_.choices(); }
  // How far the last pass's choices() were from others: [routed layer][row].
  const std::vector<std::vector<float>>& router_gaps() const { return router_gaps_; }
  // Weights of the choices, [row][choices] for each routed layer; filled where gaps are.
  const std::vector<std::vector<float>>& router_weights() const { return router_weights_; }
  const Timeline& timeline() const { return timeline_; }

  // The logits of a micro-batch's wanted rows; valid during the call only.
  using TakeLogits = std::function<void(size_t micro_batch, Rows logits)>;
  // While logits are taken: the most likely token of each row, where the micro-batch asks for no
  // more; then its logits cannot be read.
  std::span<const TokenId> most_likely() const { return tasks_.most_likely(); }

  // One pass of a group. The cache must have room reserved for every token; the caller commits.
  // Throws when a weight cannot be read; nothing is committed then, and the next pass starts clean.
  void forward(std::span<const MicroBatch> group, const TakeLogits& take);

  // Brings the weights that passes would leave in memory: into the compute tier and, where that is
  // a device's, into host memory as well. Is not part of the report.
  void preload(const std::function<void(uint64_t done, uint64_t total)>& progress);

  // Counts drafts that were verified; wrong ones are no tokens of their sequence.
  void count_drafts(const DraftCounts& verified) {
    drafts_ += verified;
    tokens_ -= verified.drafted - verified.accepted;
  }
  const DraftCounts& drafts() const { return drafts_; }

  // Tells predictors that the sequence is over; it is still placed in the cache.
  void end_sequence(const KvSequence& sequence);

  PipelineReport report() const;

  // Computes no more; false where a task never ends, which the end of the pipeline would wait for.
  [[nodiscard]] bool stop() { return executor_.stop(); }
  void abandon() { executor_.abandon(); }  // the pipeline must never end

 private:
  class Sink;

  ScheduleContext context(std::span<const MicroBatch> group);
  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch);
  void take_choices(LayerId layer);
  void observe_choices();
  void tell_choices(LayerId layer);
  void tell_expectations(LayerId observed);
  bool follows_predictor() const { return trial_ && (follow_unjudged_ || trial_->follows()); }
  void run(std::span<const MicroBatch> group, const TakeLogits& take);
  void start_clean();
  void lend_slots(int64_t rows);

  const ModelDescription& model_;
  const UnitLayouts& layouts_;
  const Policy policy_;
  std::shared_ptr<const RecordedRouting> recorded_routing_;
  Timeline timeline_;
  std::shared_ptr<UnitSource> source_;
  PagedKvCache cache_;
  WeightSlots slots_;
  Residency residency_;
  CorrelationTable correlations_;
  PredictorChoice predictor_choice_;                // keeps the state of the predictor
  std::unique_ptr<ExpertPredictor> correlation_;    // teaches the table, whoever predicts
  std::unique_ptr<ExpertPredictor> own_predictor_;  // null: correlation_ predicts
  ExpertPredictor& predictor_;
  ContextSources sources_;
  PredictionAudit prediction_audit_;
  PrefetchAudit audit_;
  LinkPace pace_;
  bool follow_unjudged_;
  std::optional<PredictionTrial> trial_;  // where the strategy follows a predictor
  GroupTasks tasks_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<std::vector<float>> router_gaps_;
  std::vector<std::vector<float>> router_weights_;
  // Rows of the group that chose each expert, in the layer whose gates finished last.
  std::vector<int64_t> expert_rows_;
  // The choices of the layer whose gates finished last, until the predictor observes them.
  struct {
    LayerId layer;
    std::vector<ExpertId> choices;  // [row][top_k]; empty: all were observed
  } not_observed_;
  // The tasks of every guess that was not withdrawn, in their order; some are over.
  using GuessedUnit = std::pair<WeightUnit, TierId>;
  std::map<GuessedUnit, std::vector<TaskNumber>> guesses_;
  std::vector<LayerProbabilities> coming_;  // predictions since the last gates, where there are any
  CacheCounters preloaded_;                 // requests of preload()
  int32_t group_size_ = 0;                  // micro-batches of the group at hand
  int64_t passes_ = 0;
  int64_t tokens_ = 0;
  DraftCounts drafts_;
  Executor executor_;  // last: its workers use all of the above
};

}  // namespace klotski
