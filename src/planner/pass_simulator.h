#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "experts/popularity_predictor.h"
#include "hardware/profile.h"
#include "planner/expert_shares.h"
#include "planner/unit_table.h"
#include "schedule/link_pace.h"
#include "schedule/simulate.h"

namespace klotski {

// Inputs of every prediction besides the policy: the model, measured times, bytes of units and
// popularity of experts.
struct PredictionInputs {
  const ModelDescription& model;
  const Profile& profile;
  std::function<UnitFacts(const WeightUnit&)> facts;
  const ExpertShares& shares;
};

// The rows of one pass, equal in every micro-batch.
struct PassShape {
  int64_t micro_batches = 1;
  double prompt_rows = 0;     // rows of one micro-batch, as in the next fields
  double decoding_rows = 0;   // tokens that follow a prompt
  double positions = 0;       // positions that a decoding row sees, but for an encoder's
  double encoded = 0;         // positions of an encoder's output
  int64_t prompt_tokens = 1;  // tokens of a prompt
  double logit_rows = 0;
  bool encodes = false;  // the rows are an encoder's input

  double rows() const { return prompt_rows + decoding_rows; }
};

// Plays passes as a policy's strategy schedules them, with measured costs: with the fragments,
// slots and dependencies of a run. The contents of memory are carried from pass to pass.
class PassSimulator {
 public:
  // All arguments must live longer. The latest spans of all passes are kept.
  PassSimulator(const PredictionInputs& with, const Policy& policy, int64_t keep_spans = 0);

  // The totals of the pass, lane by lane.
  TimelineTotals play(const PassShape& shape);

  std::vector<TimelineSpan> spans() const { return timeline_.spans(); }
  // How often each unit was brought to the compute tier so far.
  const UnitTable<int64_t>& loads() const { return loads_; }

 private:
  std::chrono::nanoseconds cost(const Task& task);
  double seconds(const Task& task);
  double disk_bytes_per_second() const;
  double load_seconds(const Task& task);
  double weight_link_seconds(double bytes) const;
  double up_seconds(double bytes) const;
  double output_share(LayerId layer) const;
  double beside_copies() const;
  double beside_cpu() const;
  std::vector<MicroBatchShape> micro_batches() const;
  double kv_pages(const Task& task) const;
  double kv_seconds(const Task& task);
  double expert_seconds(const Task& task);
  double slice_of(const Task& task) const;
  double rows_of(ExpertId expert, int32_t micro_batch) const;
  double rows_of(const Task& expert) const;
  void choose(LayerId layer);
  ScheduleContext context();
  std::vector<LayerProbabilities> coming();
  int64_t& uses_of(const Resource& slot);

  const PredictionInputs& with_;
  const Policy& policy_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<ExpertPredictor> predictor_;
  ContextSources sources_;
  Residency residency_;
  std::vector<uint64_t> kv_page_bytes_;  // bytes of a page in the file, by layer
  std::vector<uint64_t> state_bytes_;    // bytes of a sequence's state in the file, by layer
  Timeline timeline_;
  Simulation simulation_;
  LinkPace pace_;
  PassShape shape_;
  LayerId layer_{};  // whose gates have chosen last
  int64_t passes_ = 0;
  // Rows of the layer at hand that chose each expert, by micro-batch.
  std::vector<std::vector<double>> chosen_;
  // Shares of the last pass's time in which these lanes were busy: they slow each other down.
  double computing_share_ = 1.0;
  double reading_share_ = 1.0;
  double copying_share_ = 1.0;
  double cpu_share_ = 1.0;
  // Share of that time that the bus needs for keys and values, which take the weights' way.
  double kv_share_ = 0.0;
  double kv_bytes_on_bus_ = 0.0;  // bytes in the pass at hand
  double taken_seconds_ = 0.0;    // from computing, by finding memory; not yet spent
  UnitTable<int64_t> loads_;
  // Uses of a slot since it was loaded, by Resource::kind_index() and number; kNeverLoaded.
  std::vector<std::vector<int64_t>> uses_;
};

}  // namespace klotski
