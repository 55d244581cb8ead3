#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/pages.h"
#include "schedule/residency.h"
#include "schedule/schedule_context.h"
#include "schedule/task.h"
#include "schedule/task_sink.h"

namespace klotski {

// The words in which strategies are written. Each appends tasks, with the places they read and
// write, to the fragment that is being built.
class FragmentBuilder {
 public:
  FragmentBuilder(const Policy& policy, Residency& residency, ScheduleContext context);

  const ScheduleContext& context() const { return context_; }
  // Whether another processor computes some of the group's experts.
  bool shares_experts() const;
  // Costs of the layer's experts on each processor, where another processor shares them; else null.
  const ExpertCosts* shared_costs(LayerId layer) const;
  // Whether keys and values have to come for attention on the compute tier.
  bool loads_kv() const;
  // Seconds from the end of a layer's experts to the choices of the next layer, by shared_costs().
  double seconds_until_next(LayerId layer) const;
  bool resident(const WeightUnit& unit, TierId tier = kComputeTier) const {
    return residency_.resident(unit, tier);
  }
  // A layer's experts, the most chosen first, as far as that is known.
  const std::vector<ExpertId>& ranked(LayerId layer) const { return residency_.ranked(layer); }
  // Bytes that the link to the compute tier was asked for since the last call.
  uint64_t take_link_bytes() { return std::exchange(link_bytes_, 0); }
  int32_t micro_batches() const { return static_cast<int32_t>(context_.group.size()); }
  WeightUnit expert_of(LayerId layer, ExpertId expert) const;

  // Brings a unit unless it is there or on its way; false where no slot is free for it.
  bool request(const WeightUnit& unit, LoadReason reason, TierId tier = kComputeTier);
  // Puts a unit where a pass would have left it: into the memory of a tier and the memories it
  // comes through.
  void preload(const WeightUnit& unit, TierId tier);
  // Like request, but not before the layer that runs now is done: block schedules load a layer
  // while the layer before it runs, and wait for both before they go on.
  bool request_in_step(const WeightUnit& unit, LoadReason reason);
  // Requests the experts that a gate has just chosen, as far as slots are free.
  void request_chosen(LayerId layer, int32_t micro_batch, const std::vector<ExpertId>& chosen);
  // Like request, for a unit that is used next: takes the slot of a unit requested for later if it
  // must, and returns whether it did.
  bool need(const WeightUnit& unit, TierId tier = kComputeTier);
  // Brings an expert that is likely to be used, with a priority of 0 to 1 among all guesses, unless
  // it is there or replaces an expert that is worth more; returns whether it comes. Whatever is
  // needed or certain overtakes it.
  bool guess(const WeightUnit& expert, double priority);
  // Takes a guess back, as far as it has not begun; the tasks were submitted.
  void take_back(const WeightUnit& expert, TaskSink& sink);
  // Gives the slot back at once.
  void done(const WeightUnit& unit, TierId tier = kComputeTier) { residency_.release(unit, tier); }
  // Experts of the layer requested and not done, in the order of their requests.
  std::vector<WeightUnit> requested(LayerId layer) const;

  void embed(int32_t micro_batch);
  void load_kv(LayerId layer, int32_t micro_batch);
  void attention(LayerId layer, int32_t micro_batch);
  void store_kv(LayerId layer, int32_t micro_batch);
  // Whether another processor computes a micro-batch's attention. Attention then has three parts:
  // up to its beginning, the way of its results to the compute tier, and the rest.
  bool attends_elsewhere(int32_t micro_batch) const;
  void begin_attention_elsewhere(LayerId layer, int32_t micro_batch);
  void attended_up(LayerId layer, int32_t micro_batch);
  void project_back(LayerId layer, int32_t micro_batch);

  // A layer's weights in pages. There are slots for the units of any two layers.
  bool has_double_buffer() const;
  // Takes leases on all units of the layer and returns the bytes of units that have to come. They
  // come page by page: first to the compute tier's source, which is pinned, then from there.
  std::vector<PagedUnit> lease_layer(LayerId layer);
  void pin_page(const std::vector<PagePiece>& page);
  void load_page(const std::vector<PagePiece>& page);
  void release_layer(LayerId layer);
  // `behind`: units whose arrival the gate waits for besides its own.
  void gate(LayerId layer, int32_t micro_batch, const std::vector<WeightUnit>& behind = {});
  void expert(LayerId layer, ExpertId expert, int32_t micro_batch);
  // Counts the rows that chose each expert, wherever it was computed: the cache keeps experts by
  // these counts.
  void count_choices(LayerId layer, const std::vector<ExpertId>& experts);
  // Experts that the processor of another tier computes: the group's rows go there once, results
  // come back when they are computed, and are put in their places when everything else is.
  void rows_to(TierId tier, LayerId layer);
  // `sliced`: outputs of the expert that the compute tier computes by expert_slice(); `tier`
  // computes the rest.
  void expert_at(TierId tier, LayerId layer, ExpertId expert, int64_t sliced);
  void expert_slice(LayerId layer, ExpertId expert, int64_t outputs);
  void scatter(LayerId layer, ExpertId expert, int64_t sliced);
  // Brings an expert that was computed elsewhere, for the next time, if it is used more than
  // another.
  void refill(LayerId layer, ExpertId expert);
  void combine(LayerId layer, int32_t micro_batch);
  void logits(int32_t micro_batch);

  void now_at(LayerId layer) { residency_.now_at(layer); }

  // The tasks built since the last call.
  Fragment take();

 private:
  // Why a unit is brought, and the places that the decision rests on.
  struct Order {
    LoadReason reason = LoadReason::certain;
    std::vector<Resource> after{};
    float priority = 0;
  };
  void load_into(int32_t slot, const WeightUnit& unit, TierId tier, const Order& order);
  bool bring(const WeightUnit& unit, TierId tier, const Order& order);
  bool enough_ahead(const WeightUnit& unit, LoadReason reason) const;
  void come_from_source(Task& task, const Order& order);
  int32_t fetch(const WeightUnit& unit, TierId tier, const Order& order);
  int32_t slot_of_chosen(const WeightUnit& expert, TierId tier);
  std::vector<Resource> of_all_batches(Place place) const;
  Task compute(Work work, const WeightUnit& unit, LayerId layer, int32_t micro_batch) const;
  void on_rows_of(Task& expert, int32_t micro_batch) const;
  Resource slot_of(const WeightUnit& unit, TierId tier = kComputeTier) const;
  bool comes_through_stage(int32_t micro_batch) const;
  int32_t stage_of(int32_t micro_batch) const;
  std::vector<WeightUnit> units_of_layer(LayerId layer) const;
  int32_t attention_buffer(LayerId layer, int32_t micro_batch) const;
  Task exchange(Work work, Lane lane, LayerId layer, int32_t micro_batch) const;

  const Policy& policy_;
  Residency& residency_;
  ScheduleContext context_;
  Fragment fragment_;
  uint64_t link_bytes_ = 0;
};

}  // namespace klotski
