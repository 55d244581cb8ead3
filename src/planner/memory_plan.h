#pragma once

// The memory contract: what a memory is used for, decided before a weight is read.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/units.h"

namespace klotski {

// Buffers a kind of unit could use.
struct UnitDemand {
  int64_t units = 0;          // of the model: with so many buffers all stay resident
  int64_t least = 0;          // buffers without which nothing runs
  uint64_t buffer_bytes = 0;  // of the largest unit
};

struct MemoryDemand {
  uint64_t process_bytes = 0;     // program, tokenizer, margin: there whatever is planned
  uint64_t activation_bytes = 0;  // of the largest group that does not borrow slots
  std::array<UnitDemand, kUnitKinds> units;
  // Of what a device and the CPU beside it exchange, but for rows that lie with the activations,
  // and the slice of an expert of both.
  uint64_t shared_bytes = 0;
  uint64_t kv_least_bytes = 0;   // for the smallest group that may have to run
  uint64_t kv_wanted_bytes = 0;  // for a full group
  uint64_t kv_stage_bytes = 0;   // to pass spilled keys and values through; 0: no spilling
};

struct MemoryLimits {
  uint64_t bytes = 0;
  std::string_view memory = "memory";     // in words
  std::string_view flag = "--ram";        // that sets the limit
  std::optional<uint64_t> kv_bytes{};     // at most so much of it for keys and values
  std::optional<int64_t> expert_slots{};  // at most so many expert buffers
};

struct MemoryLine {
  std::string kind;
  uint64_t bytes = 0;
  std::string remark;
};

struct MemoryPlan {
  std::string memory;
  uint64_t limit_bytes = 0;
  uint64_t process_bytes = 0;
  uint64_t activation_bytes = 0;
  std::array<int64_t, kUnitKinds> slots{};
  uint64_t kv_bytes = 0;
  uint64_t kv_stage_bytes = 0;
  std::vector<MemoryLine> lines;  // the same as a table

  uint64_t total_bytes() const;
};

// Without so much nothing runs.
uint64_t least_bytes(const MemoryDemand& demand);

// Gives every kind its least, then keys and values what a full group wants: whether a smaller group
// with more weights beside it is faster is for the search to find. Then makes the units resident
// that every token uses (a byte of them saves a byte of reading in every pass, one of an expert
// only where the expert is chosen), and gives experts the rest. Keys and values that may lie below
// as well come after these units. Refuses (does_not_fit) with the shortfall where the least does
// not fit.
MemoryPlan plan_memory(const MemoryDemand& demand, const MemoryLimits& limits);

// The table that is shown before a weight is read.
std::string format_memory_plan(const MemoryPlan& plan);

}  // namespace klotski
