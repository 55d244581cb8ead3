#pragma once

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "executor/cpu_attention.h"
#include "executor/cpu_experts.h"
#include "executor/micro_batch.h"
#include "executor/weight_slots.h"
#include "experts/recorded_routing.h"
#include "forward/layer.h"
#include "kv/paged_cache.h"
#include "schedule/builder.h"
#include "schedule/dependencies.h"
#include "schedule/group_bytes.h"

namespace klotski {

// Calls on a device that have begun and are not over, at most. A second copy keeps a link busy;
// computations of a device are a chain of short calls.
inline constexpr size_t kMostCopies = 2;
inline constexpr size_t kMostComputations = 12;

// Rules of the lanes: a device's lanes begin tasks ahead, a host's do not.
LaneRules lane_rules(const ComputeMemory& memory);

// Carries out each kind of task, on the rows of one group. The rows of all micro-batches lie one
// after the other, so that an expert finds all rows that chose it in one place.
class GroupTasks {
 public:
  // `recorded`: choices that sequences follow in place of their gates'; null: none.
  GroupTasks(const Arithmetic& with, WeightSlots& slots, PagedKvCache& cache, const Policy& policy,
             const ComputeMemory& memory, const RecordedRouting* recorded = nullptr);

  // Takes a copy of the group to work on next, whose sequences must stay until the tasks are done.
  void begin(std::span<const MicroBatch> group);

  // Carries out a task, or several that may_join() has joined. The worker of their lane calls
  // run(), begin_ahead() and finish().
  void run(std::span<const Task* const> tasks);
  // Sets the tasks' work going on a device. finish() waits for it, in the order of begin_ahead() on
  // each lane.
  void begin_ahead(std::span<const Task* const> tasks);
  void finish(std::span<const Task* const> tasks);
  // Whether an expert that may begin joins the call of the experts before it: the kernels then have
  // enough to do for all threads even where each has few rows.
  bool may_join(std::span<const Task* const> together, const Task& next) const;

  // Choices of the last gate of a micro-batch: [rows][choices], best first.
  std::span<const ExpertId> choices(int32_t micro_batch) const;
  // How far these choices were from others, [rows]; empty where Arithmetic does not ask for it.
  std::span<const float> router_gaps(int32_t micro_batch) const;
  // Weights of these choices, [rows][choices]; empty like gaps.
  std::span<const float> router_weights(int32_t micro_batch) const;
  // Results of the last logits task: a row for each of batch.logit_rows(), or the most likely token
  // of each where only that is asked for.
  Rows logits();
  std::span<const TokenId> most_likely() const { return most_likely_; }

 private:
  struct Member {
    MicroBatch micro_batch;
    int64_t first_row = 0;
    std::optional<Rotation> rotation = {};  // rotation in all layers
    std::optional<Routing> routing = {};    // routing of the latest layer
  };

  // The choices of a micro-batch or of the group, by expert.
  struct SortedChoices {
    int32_t micro_batch;
    List<int32_t> in_rows;
    List<int32_t> out_rows;
    List<float> scales;         // factors of inputs, or none
    std::vector<size_t> begin;  // by expert, and the end
  };

  using Tasks = std::span<const Task* const>;
  struct Part;
  enum class Joins;
  struct Carrier;
  struct Carriers;

  static const Carrier& carrier_of(Tasks tasks);
  void place_rows(int64_t rows);
  float* memory_of_rows(int64_t rows);
  float* own_rows(int64_t rows);
  void call(const Part& part, Tasks tasks);
  const Rotation& rotation(Member& of);
  ChosenExpert chosen_expert(const Task& task);
  const SortedChoices& sorted(const Task& task);
  RoutedRows routed_rows(const Member& of, std::span<const ExpertId> experts,
                         std::span<const float> scales) const;

  // The parts that kinds of task are carried out by, as their table in group_calls.cpp names them.
  void fetch(const Task& task) { slots_.fetch(task); }
  void load(const Task& task) { slots_.load(task); }
  void begin_load(const Task& task) { slots_.begin_load(task); }
  void finish_load(const Task&) { slots_.finish_load(); }
  void settle(const Task& task) { slots_.settle(task); }
  void embed(const Task& task);
  void attention(const Task& task);
  void self_attention(Member& of, AttentionOf attention, const WeightSet& weights);
  void project(const Task& task);
  void queries_down(const Task& task);
  void attention_on_cpu(const Task& task);
  void attended_up(const Task& task);
  void project_back(const Task& task);
  void gate(const Task& task);
  void gate_begun(const Task&) { gated_ = under_way_.back(); }
  void take_choices(const Task& task);
  void experts(Tasks tasks);
  void rows_down(const Task& task);
  void begin_rows_down(const Task& task);
  void finish_rows_down(const Task& task);
  void experts_on_cpu(Tasks tasks) { cpu_experts_->run(tasks); }
  void rows_up(Tasks tasks);
  void begin_rows_up(Tasks tasks) { cpu_experts_->begin_rows_up(tasks); }
  void finish_rows_up(Tasks) { cpu_experts_->finish_rows_up(); }
  void scatter(Tasks tasks);
  void combine(const Task& task);
  void compute_logits(const Task& task);
  void load_kv(const Task& task);
  void store_kv(const Task& task);

  Member& member(const Task& task) { return members_[static_cast<size_t>(task.micro_batch)]; }
  Rows rows_of(Rows rows, const Member& member) const;
  int64_t rows_of(const Task& task) { return member(task).micro_batch.batch.rows(); }
  // First expert output of a micro-batch, which has its own place whatever the layer.
  int64_t first_output(const Member& member) const { return member.first_row * most_choices_; }
  std::vector<ExpertId> recorded_choices(const Member& of, LayerId layer) const;
  KvStage* stage(const Task& task);

  Arithmetic with_;
  WeightSlots& slots_;
  PagedKvCache& cache_;
  const Policy& policy_;
  const RecordedRouting* recorded_;
  bool all_experts_in_host_slots_;  // every expert has a slot in host memory
  std::optional<BufferPool> stage_buffers_;
  std::vector<KvStage> stages_;                // stages of spilled keys and values
  std::optional<CpuExperts> cpu_experts_;      // where the CPU shares the experts
  std::optional<CpuAttention> cpu_attention_;  // where the CPU attends
  // Marks of the stream (ProcessorMemory::mark()): after each call that has begun ahead, and after
  // the latest gate. Rows for the CPU are copied behind the latest gate. Some operations before
  // that gate may be later than those that write the rows, but none of them waits for the copy.
  std::deque<StreamMark> under_way_;
  StreamMark gated_;
  std::vector<Member> members_;
  std::optional<SortedChoices> sorted_;  // choices of the gates that ran last
  int64_t most_choices_ = 1;             // experts a token, in any layer
  int64_t rows_ = 0;                     // rows that there is memory for
  std::optional<List<float>> own_rows_;  // unless they lie in lent slots
  Rows hidden_;                          // [rows][hidden]
  Rows normed_;                          // [rows][hidden]
  Rows outputs_;                         // [rows][choices][hidden]
  std::optional<Buffer> logits_;
  std::vector<float> read_logits_;  // where the program cannot read logits_
  std::vector<TokenId> most_likely_;
};

}  // namespace klotski
