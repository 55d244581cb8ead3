#pragma once

// Tasks, which schedules are made of. A fragment is a value: it names no thread, stream or lock, so
// it can be printed, tested, simulated and executed alike.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/tier.h"
#include "model/units.h"
#include "schedule/task_kind.h"
#include "timeline/span.h"

namespace klotski {

// Places that tasks read and write, as physical as the memory behind them: whoever writes a place
// waits for its readers, so double buffering follows from there being two buffers.
enum class Place : uint8_t {
  slot,     // a slot for units: `number` is the slot, `kind` the kind of unit
  hidden,   // rows of a micro-batch; so are the following
  normed,   // rows as the experts take them; away from the first compute tier the group's, number 0
  routing,  // choices of the gate
  outputs,  // outputs of the experts, by row and choice
  kv,       // keys and values, wherever they live
  stage,    // a staging buffer of spilled keys and values
  logits,   // one buffer for all micro-batches
  // Results of an expert (`number`) that is computed away from the first compute tier, there and
  // after the way back.
  results,
  // Buffers of attention that is computed away from the first compute tier: its inputs and its
  // results, on both sides.
  queries,
  attended,
  // A slice of an expert on the device, and its outputs there.
  slice,
  slice_outputs,
  count_
};

inline constexpr size_t kPlaces = static_cast<size_t>(Place::count_);

struct Resource {
  Place place = Place::hidden;
  int32_t number = 0;
  UnitKind kind = UnitKind::count_;  // for slots only
  TierId tier = kComputeTier;        // the memory's tier

  auto operator<=>(const Resource&) const = default;

  // A small number for all fields but `number`: resources that differ in these have different ones.
  size_t kind_index() const {
    const size_t tier_index = size_t{tier.number} * kTierKinds + static_cast<size_t>(tier.kind);
    return (tier_index * kPlaces + static_cast<size_t>(place)) * (kUnitKinds + 1) + index_of(kind);
  }
};

// Why a unit is loaded: known to be needed, expected to be, or chosen by a gate.
enum class LoadReason { certain, prefetch, demand };

inline constexpr int32_t kWholeGroup = -1;

// Micro-batches that attention on the CPU runs ahead of the device's next step for them.
inline constexpr int32_t kAttentionAhead = 2;
inline constexpr int32_t kAttentionBuffers = kAttentionAhead + 1;

struct Task {
  Work work = Work::embed;
  Lane lane{};
  WeightUnit unit{};                  // loaded or read
  TierId tier = kComputeTier;         // tier of the memory that the unit lies in, or comes to
  int32_t slot = 0;                   // slot in that memory
  int32_t source_slot = -1;           // the unit's slot in the tier's source; -1: a disk
  LayerId layer{};                    // layer of the pass
  int32_t micro_batch = kWholeGroup;  // kWholeGroup: all micro-batches
  int32_t stage = -1;                 // stage of spilled keys and values
  int32_t buffer = -1;                // buffer of attention that the CPU computes
  uint64_t offset = 0;                // first of the unit's own bytes that are loaded
  uint64_t bytes = 0;                 // moved
  // Whether this task brings only a part of a place that it writes. A later task then may not begin
  // before it is done.
  bool partial = false;
  int64_t sliced = 0;  // outputs of the expert that the device computes, the CPU the rest; 0: whole
  LoadReason reason = LoadReason::certain;
  // Priority of a task that brings weights: its lane takes higher ones first (lane_queue.h).
  // Negative for a guess, which everything that is certain or chosen overtakes.
  float priority = 0;
  std::vector<Resource> reads{};
  std::vector<Resource> writes{};
  // Places of which each task writes a part of its own: tasks that fill a place do not wait for
  // each other, every other task waits for them as for any writer.
  std::vector<Resource> fills{};
  // Places that the decision for this task rests on: it begins after these were written, but does
  // not keep them from being written again while it runs.
  std::vector<Resource> after{};
};

// Added to the priority of a guess among guesses, 0 to 1.
inline constexpr float kGuessPriority = -2;
// Whether a task brings a unit by a guess that may be withdrawn.
inline bool is_guess(const Task& task) { return task.priority < 0; }

// Tasks in program order: a task may depend on earlier ones only.
using Fragment = std::vector<Task>;

// The span of a task on a timeline, without times.
TimelineSpan span_of(const Task& task);

std::string format_task(const Task& task);
std::string format_fragment(const Fragment& fragment);  // a line a task

}  // namespace klotski
