// The functions that carry out each kind of task, one row of one table each, and the calls that use
// the table.

#include <array>

#include "executor/group_tasks.h"
#include "executor/quietly.h"
#include "forward/layer.h"

namespace klotski {

// The tasks of a kind that run in one call.
enum class GroupTasks::Joins {
  none,
  all,
  few_weights,     // tasks of kJoinedExpertBytes together
  few_host_slots,  // like few_weights, and all where every expert has a host slot: none waits
};

// A function that takes one task, or all of a call.
struct GroupTasks::Part {
  using One = void (GroupTasks::*)(const Task&);
  using All = void (GroupTasks::*)(Tasks);

  constexpr Part() = default;
  constexpr Part(One part) : one(part) {}
  constexpr Part(All part) : all(part) {}
  constexpr explicit operator bool() const { return one != nullptr || all != nullptr; }

  One one = nullptr;
  All all = nullptr;
};

// The parts of a kind. Where a processor computes it, `run` calls operations, and `begun` follows
// where they have begun ahead, `finish` when they are over. Elsewhere `run` does everything, or
// `begin` sets it going and `finish` waits for it.
struct GroupTasks::Carrier {
  Work work = Work::count_;
  Part run{};
  Part begin{};
  Part begun{};
  Part finish{};
  Joins joins = Joins::none;

  constexpr bool on_processor() const { return kind_of(work).lanes == LaneClass::processor; }
};

struct GroupTasks::Carriers {
  using G = GroupTasks;

  static constexpr std::array<Carrier, kWorkCount> kRows = {{
      {.work = Work::fetch, .run = &G::fetch},
      {.work = Work::load, .run = &G::load, .begin = &G::begin_load, .finish = &G::finish_load},
      {.work = Work::settle, .run = &G::settle},
      {.work = Work::embed, .run = &G::embed},
      {.work = Work::attention, .run = &G::attention},
      {.work = Work::project, .run = &G::project},
      {.work = Work::queries_down, .run = &G::queries_down},
      {.work = Work::attention_on_cpu, .run = &G::attention_on_cpu},
      {.work = Work::attended_up, .run = &G::attended_up},
      {.work = Work::project_back, .run = &G::project_back},
      {.work = Work::gate, .run = &G::gate, .begun = &G::gate_begun, .finish = &G::take_choices},
      {.work = Work::expert, .run = &G::experts, .joins = Joins::few_weights},
      {.work = Work::rows_down,
       .run = &G::rows_down,
       .begin = &G::begin_rows_down,
       .finish = &G::finish_rows_down},
      {.work = Work::expert_on_cpu, .run = &G::experts_on_cpu, .joins = Joins::few_host_slots},
      {.work = Work::rows_up,
       .run = &G::rows_up,
       .begin = &G::begin_rows_up,
       .finish = &G::finish_rows_up,
       .joins = Joins::all},
      {.work = Work::scatter, .run = &G::scatter, .joins = Joins::all},
      {.work = Work::combine, .run = &G::combine},
      {.work = Work::logits, .run = &G::compute_logits},
      {.work = Work::load_kv, .run = &G::load_kv},
      {.work = Work::store_kv, .run = &G::store_kv},
  }};

  // Every kind has its row, in its place, with all parts that it needs.
  static constexpr bool complete() {
    for (size_t i = 0; i < kRows.size(); ++i) {
      const Carrier& row = kRows[i];
      if (row.work != static_cast<Work>(i) || !row.run) return false;
      const bool in_two_parts = kind_of(row.work).begins_ahead && !row.on_processor();
      if (in_two_parts && !(row.begin && row.finish)) return false;
    }
    return true;
  }
};

const GroupTasks::Carrier& GroupTasks::carrier_of(Tasks tasks) {
  static_assert(Carriers::complete());
  return Carriers::kRows[static_cast<size_t>(tasks[0]->work)];
}

LaneRules lane_rules(const ComputeMemory& memory) {
  LaneRules lanes;
  if (!memory.device) return lanes;
  lanes.most_begun.at(Lane::kCompute) = kMostComputations;
  lanes.most_begun.at(Lane::kToDevice) = kMostCopies;
  lanes.most_begun.at(Lane::kRowsDown) = 1;
  lanes.most_begun.at(Lane::kRowsUp) = 1;
  return lanes;
}

bool GroupTasks::may_join(Tasks together, const Task& next) const {
  const Task& first = *together[0];
  if (first.work != next.work || first.layer != next.layer ||
      first.micro_batch != next.micro_batch) {
    return false;
  }
  const Joins joins = carrier_of(together).joins;
  if (joins == Joins::none || joins == Joins::all) return joins == Joins::all;
  if (joins == Joins::few_host_slots && all_experts_in_host_slots_) return true;
  return (together.size() + 1) * slots_.slot_bytes(next.unit.kind) <= kJoinedExpertBytes;
}

void GroupTasks::call(const Part& part, Tasks tasks) {
  if (part.all != nullptr) (this->*part.all)(tasks);
  if (part.one != nullptr) (this->*part.one)(*tasks[0]);
}

// Operations may have begun and not ended when their calls return: the task has ended when they
// have.
void GroupTasks::run(Tasks tasks) {
  const Carrier& carrier = carrier_of(tasks);
  if (!carrier.on_processor()) return call(carrier.run, tasks);
  begin_or_finish([&] { call(carrier.run, tasks); }, [&] { with_.ops.memory.finish(); });
  with_.ops.memory.finish();
  call(carrier.finish, tasks);
}

void GroupTasks::begin_ahead(Tasks tasks) {
  const Carrier& carrier = carrier_of(tasks);
  if (!carrier.on_processor()) return call(carrier.begin, tasks);
  const auto operations = [&] {
    call(carrier.run, tasks);
    under_way_.push_back(with_.ops.memory.mark());
    call(carrier.begun, tasks);
  };
  begin_or_finish(operations, [&] { with_.ops.memory.finish(); });
}

void GroupTasks::finish(Tasks tasks) {
  const Carrier& carrier = carrier_of(tasks);
  if (carrier.on_processor()) {
    const StreamMark mark = under_way_.front();
    under_way_.pop_front();
    with_.ops.memory.finish_to(mark);
  }
  call(carrier.finish, tasks);
}

}  // namespace klotski
