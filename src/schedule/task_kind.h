#pragma once

// The kinds of task, one row of one table each. The name of a kind, the lanes that take it, and how
// it may begin before the tasks that it depends on are over are written there and nowhere else; the
// functions that carry a kind out are a row of the table in executor/group_calls.cpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace klotski {

enum class Work {
  fetch,             // a unit's bytes from disk into a slot of host memory
  load,              // a unit's bytes into a slot of the compute tier, from host memory or disk
  settle,            // tensors of a loaded unit moved to where the kernels want them
  embed,             // embedding of a micro-batch
  attention,         // attention of a micro-batch
  project,           // inputs of attention of a micro-batch, where the CPU computes attention
  queries_down,      // the results of project to the CPU
  attention_on_cpu,  // attention of a micro-batch, from the results of project
  attended_up,       // the results of attention_on_cpu to the device
  project_back,      // the results of attention_on_cpu added to the hidden rows
  gate,              // norm and routing of a micro-batch
  expert,            // over the rows that chose it, of one micro-batch or of the group
  rows_down,         // rows that experts take, of the group, to where the CPU computes
  expert_on_cpu,     // over the rows of the group that chose it, from host memory
  rows_up,           // the results of expert_on_cpu to the device
  scatter,           // the results of expert_on_cpu to the rows and choices they belong to
  combine,           // expert outputs and the shared expert added to a micro-batch's hidden rows
  logits,            // logits of a micro-batch
  load_kv,           // spilled keys and values of a micro-batch and layer into a stage
  store_kv,          // the new keys and values of a stage back
  count_
};

inline constexpr size_t kWorkCount = static_cast<size_t>(Work::count_);

// A set of kinds.
class WorkSet {
 public:
  constexpr WorkSet() = default;
  constexpr WorkSet(std::initializer_list<Work> works) {
    for (const Work work : works) bits_ |= bit(work);
  }
  constexpr bool has(Work work) const { return (bits_ & bit(work)) != 0; }

 private:
  static constexpr uint32_t bit(Work work) { return uint32_t{1} << static_cast<uint32_t>(work); }
  static_assert(kWorkCount <= 32);

  uint32_t bits_ = 0;
};

// The lanes that take tasks of a kind.
enum class LaneClass {
  processor,  // the compute tier's; a device runs operations in the order of calls
  cpu,        // the CPU of a machine with a device
  weights,    // ways of weights: from disk, to a device, within the program's memory
  rows,       // ways of rows between a device and the CPU
  kv,         // ways of spilled keys and values
};

// The thing that a printed task and its span name besides the kind.
enum class TaskSubject { unit, micro_batch, layer, expert };

struct TaskKind {
  Work work = Work::count_;
  std::string_view name{};  // static text; work of the CPU is named like the device's
  LaneClass lanes = LaneClass::processor;
  TaskSubject subject = TaskSubject::layer;
  // Whether its work can be set going ahead and waited for later, on lanes that can begin ahead. On
  // a processor it then follows earlier operations in their order.
  bool begins_ahead = false;
  // Kinds of task that its work, once begun, waits for by itself if they have begun: the device
  // waits for an event behind their copies or operations.
  WorkSet awaits{};
  // Like `awaits`, by a count of such tasks in pinned memory: this holds only where both lanes keep
  // program order.
  WorkSet awaits_count{};
  // Whether its end makes tasks for many lanes known at once. Sleeping lane threads are woken while
  // it runs, so that they are awake when the first of these may start.
  bool wakes_lanes = false;
  bool computes_experts = false;
};

// The way from one gate to the next, with that gate, is short calls that only weights on their way
// and results of the CPU can hold up: they begin ahead, so that a device goes it alone.
inline constexpr std::array<TaskKind, kWorkCount> kTaskKinds = {{
    {.work = Work::fetch,
     .name = "fetch",
     .lanes = LaneClass::weights,
     .subject = TaskSubject::unit},
    {.work = Work::load,
     .name = "load",
     .lanes = LaneClass::weights,
     .subject = TaskSubject::unit,
     .begins_ahead = true},
    {.work = Work::settle,
     .name = "settle",
     .lanes = LaneClass::weights,
     .subject = TaskSubject::unit},
    {.work = Work::embed,
     .name = "embed",
     .lanes = LaneClass::processor,
     .subject = TaskSubject::micro_batch},
    {.work = Work::attention,
     .name = "attention",
     .lanes = LaneClass::processor,
     .begins_ahead = true},
    {.work = Work::project, .name = "project", .lanes = LaneClass::processor},
    {.work = Work::queries_down, .name = "queries down", .lanes = LaneClass::rows},
    {.work = Work::attention_on_cpu, .name = "attention", .lanes = LaneClass::cpu},
    {.work = Work::attended_up, .name = "attended up", .lanes = LaneClass::rows},
    {.work = Work::project_back, .name = "project back", .lanes = LaneClass::processor},
    {.work = Work::gate,
     .name = "gate",
     .lanes = LaneClass::processor,
     .begins_ahead = true,
     .wakes_lanes = true},
    {.work = Work::expert,
     .name = "expert",
     .lanes = LaneClass::processor,
     .subject = TaskSubject::expert,
     .begins_ahead = true,
     .awaits = {Work::load},
     .computes_experts = true},
    {.work = Work::rows_down,
     .name = "rows down",
     .lanes = LaneClass::rows,
     .begins_ahead = true,
     .awaits = {Work::gate}},
    {.work = Work::expert_on_cpu,
     .name = "expert",
     .lanes = LaneClass::cpu,
     .subject = TaskSubject::expert,
     .computes_experts = true},
    {.work = Work::rows_up,
     .name = "rows up",
     .lanes = LaneClass::rows,
     .subject = TaskSubject::expert,
     .begins_ahead = true,
     .awaits_count = {Work::expert_on_cpu}},
    {.work = Work::scatter,
     .name = "scatter",
     .lanes = LaneClass::processor,
     .subject = TaskSubject::expert,
     .begins_ahead = true,
     .awaits = {Work::rows_up}},
    {.work = Work::combine, .name = "combine", .lanes = LaneClass::processor, .begins_ahead = true},
    {.work = Work::logits,
     .name = "logits",
     .lanes = LaneClass::processor,
     .subject = TaskSubject::micro_batch},
    {.work = Work::load_kv, .name = "load KV", .lanes = LaneClass::kv},
    {.work = Work::store_kv, .name = "store KV", .lanes = LaneClass::kv},
}};

// Every kind has its row, in its place: a missing one is an error here.
constexpr bool task_kinds_complete() {
  for (size_t i = 0; i < kTaskKinds.size(); ++i) {
    if (kTaskKinds[i].work != static_cast<Work>(i) || kTaskKinds[i].name.empty()) return false;
  }
  return true;
}
static_assert(task_kinds_complete());

constexpr const TaskKind& kind_of(Work work) { return kTaskKinds[static_cast<size_t>(work)]; }

// Tasks that bring weights have a priority, may go on when a pass is over and can be withdrawn.
constexpr bool brings_weights(Work work) { return kind_of(work).lanes == LaneClass::weights; }

constexpr std::string_view work_name(Work work) { return kind_of(work).name; }

}  // namespace klotski
