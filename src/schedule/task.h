#pragma once

// What a schedule is made of. A fragment is a value: it names no thread, stream or lock, so it can
// be printed, tested, simulated and executed alike.

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
  slot,     // of a kind of unit: `number` is the slot, `kind` says of which
  hidden,   // rows of a micro-batch; so are the following
  normed,   // rows as the experts take them; away from the first compute tier the group's, number 0
  routing,  // what the gate chose
  outputs,  // of the experts, by row and choice
  kv,       // keys and values, wherever they live
  stage,    // a staging buffer of spilled keys and values
  logits,   // one buffer for all micro-batches
  // What an expert (`number`) that is computed away from the first compute tier made of its rows,
  // there and after the way back.
  results,
  // Buffers of attention that is computed away from the first compute tier: what it needs and what
  // it gives, on both sides.
  queries,
  attended,
  // A slice of an expert on the device, and what it made of the rows there.
  slice,
  slice_outputs,
  count_
};

inline constexpr size_t kPlaces = static_cast<size_t>(Place::count_);

struct Resource {
  Place place = Place::hidden;
  int32_t number = 0;
  UnitKind kind = UnitKind::count_;  // of slots only
  TierId tier = kComputeTier;        // whose memory it is

  auto operator<=>(const Resource&) const = default;

  // A small number for all that is said but `number`: resources that differ in it have another.
  size_t kind_index() const {
    const size_t tier_index = size_t{tier.number} * kTierKinds + static_cast<size_t>(tier.kind);
    return (tier_index * kPlaces + static_cast<size_t>(place)) * (kUnitKinds + 1) + index_of(kind);
  }
};

// Why a unit is loaded: known to be needed, expected to be, or chosen by a gate.
enum class LoadReason { certain, prefetch, demand };

inline constexpr int32_t kWholeGroup = -1;

// Attention on the CPU runs two micro-batches ahead of what follows it.
inline constexpr int32_t kAttentionAhead = 2;
inline constexpr int32_t kAttentionBuffers = kAttentionAhead + 1;

struct Task {
  Work work = Work::embed;
  Lane lane{};
  WeightUnit unit{};                  // loaded or read
  TierId tier = kComputeTier;         // whose memory the unit lies in, or comes to
  int32_t slot = 0;                   // there
  int32_t source_slot = -1;           // where a unit comes from in the tier's source; -1: a disk
  LayerId layer{};                    // of the pass
  int32_t micro_batch = kWholeGroup;  // or the whole group
  int32_t stage = -1;                 // of spilled keys and values
  int32_t buffer = -1;                // of attention that the CPU computes
  uint64_t offset = 0;                // of a unit's own bytes, where a part of it is loaded
  uint64_t bytes = 0;                 // moved
  // Other tasks bring other parts of what it writes: nobody can wait by itself for this one alone.
  bool partial = false;
  int64_t sliced = 0;  // outputs of the expert that the device computes, the CPU the rest; 0: whole
  LoadReason reason = LoadReason::certain;
  // Priority of a task that brings weights: its lane takes higher ones first (lane_queue.h).
  float priority = 0;
  std::vector<Resource> reads{};
  std::vector<Resource> writes{};
  // Places of which a part is written that no other task of the kind writes: those that fill a
  // place do not wait for each other, everyone else waits for them as for any writer.
  std::vector<Resource> fills{};
  // What the decision for this task rests on: it begins after these were written, but does not keep
  // them from being written again while it runs.
  std::vector<Resource> after{};
};

// In program order: a task may depend on earlier ones only.
using Fragment = std::vector<Task>;

// What a task looks like on a timeline, times left out.
TimelineSpan span_of(const Task& task);

std::string format_task(const Task& task);
std::string format_fragment(const Fragment& fragment);  // a line a task

}  // namespace klotski
