#pragma once

// The memory contract: the division of a memory, decided before a weight is read.

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
  int64_t units = 0;          // units of the model: with as many buffers all stay resident
  int64_t least = 0;          // buffers without which nothing runs
  uint64_t buffer_bytes = 0;  // bytes of the largest unit
};

struct MemoryDemand {
  uint64_t process_bytes = 0;     // program, tokenizer, margin: there whatever is planned
  uint64_t activation_bytes = 0;  // rows and scratch of the largest group without lent slots
  std::array<UnitDemand, kUnitKinds> units;
  // Bytes of the rows that a device and the CPU exchange, but for rows that lie with the
  // activations, and of the slice of an expert that both compute.
  uint64_t shared_bytes = 0;
  uint64_t kv_least_bytes = 0;   // for the smallest group that may have to run
  uint64_t kv_wanted_bytes = 0;  // for a full group
  uint64_t kv_stage_bytes = 0;   // stages for spilled keys and values; 0: no spilling
};

struct MemoryLimits {
  uint64_t bytes = 0;
  std::string_view memory = "memory";     // name in words
  std::string_view flag = "--ram";        // the flag that sets the limit
  std::optional<uint64_t> kv_bytes{};     // limit for keys and values
  std::optional<int64_t> expert_slots{};  // limit for expert buffers
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
  std::vector<MemoryLine> lines;  // the plan as a table

  uint64_t total_bytes() const;
};

// Bytes without which nothing runs.
uint64_t least_bytes(const MemoryDemand& demand);

// Gives every kind its least, then keys and values the bytes that a full group wants: whether a
// smaller group with more weights in memory is faster is for the search to find. Then makes the
// units resident that every token uses (a byte of them saves a byte of reading in every pass, a
// byte of an expert only where the expert is chosen), and gives experts the rest. Keys and values
// that may lie in host memory or a file come after these units. Refuses (does_not_fit) with the
// shortfall where the least does not fit.
MemoryPlan plan_memory(const MemoryDemand& demand, const MemoryLimits& limits);

// The table that is shown before a weight is read.
std::string format_memory_plan(const MemoryPlan& plan);

}  // namespace klotski
