#include "planner/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

// Kinds that every token uses. They come before experts, of which a token uses some.
constexpr std::array kUsedByEveryToken = {UnitKind::attention, UnitKind::gate, UnitKind::dense};

// Memory that is given away piece by piece.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : left_(bytes) {}

  uint64_t left() const { return left_; }
  uint64_t take_up_to(uint64_t bytes) {
    const uint64_t taken = std::min(bytes, left_);
    left_ -= taken;
    return taken;
  }
  int64_t take_pieces(int64_t most, uint64_t bytes_each) {
    if (most <= 0 || bytes_each == 0) return 0;
    const auto count =
        static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(most), left_ / bytes_each));
    left_ -= static_cast<uint64_t>(count) * bytes_each;
    return count;
  }

 private:
  uint64_t left_;
};

std::vector<MemoryLine> least_lines(const MemoryDemand& demand) {
  std::vector<MemoryLine> lines = {{"program", demand.process_bytes, ""},
                                   {"activations", demand.activation_bytes, ""}};
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    const UnitDemand& units = demand.units[kind];
    const uint64_t bytes = static_cast<uint64_t>(units.least) * units.buffer_bytes;
    lines.push_back({std::string(unit_kind_name(static_cast<UnitKind>(kind))), bytes, ""});
  }
  lines.push_back({"shared with the CPU", demand.shared_bytes, ""});
  lines.push_back({"KV cache", demand.kv_least_bytes, ""});
  lines.push_back({"KV staging", demand.kv_stage_bytes, ""});
  return lines;
}

uint64_t sum(const std::vector<MemoryLine>& lines) {
  uint64_t bytes = 0;
  for (const MemoryLine& line : lines) bytes += line.bytes;
  return bytes;
}

[[noreturn]] void refuse(const std::vector<MemoryLine>& least, const MemoryLimits& limits) {
  std::string parts;
  for (const MemoryLine& line : least) {
    if (line.bytes == 0) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", line.kind, format_bytes(line.bytes));
  }
  const uint64_t needed = sum(least);
  fail(ErrorKind::does_not_fit,
       "the model needs at least {} of {} ({}), the limit is {}: {} too little; raise {}, or ask "
       "for "
       "fewer or shorter sequences",
       format_bytes(needed), limits.memory, parts, format_bytes(limits.bytes),
       format_bytes(needed - limits.bytes), limits.flag);
}

std::string resident_remark(int64_t slots, int64_t units) {
  if (units == 0) return "";
  if (slots >= units) return fmt::format("all {} resident", units);
  return fmt::format("{} buffers for {}", slots, units);
}

}  // namespace

uint64_t MemoryPlan::total_bytes() const { return sum(lines); }

uint64_t least_bytes(const MemoryDemand& demand) { return sum(least_lines(demand)); }

MemoryPlan plan_memory(const MemoryDemand& demand, const MemoryLimits& limits) {
  if (limits.kv_bytes && *limits.kv_bytes < demand.kv_least_bytes) {
    fail(ErrorKind::does_not_fit, "the KV cache needs at least {}, --kv-limit is {}: {} too little",
         format_bytes(demand.kv_least_bytes), format_bytes(*limits.kv_bytes),
         format_bytes(demand.kv_least_bytes - *limits.kv_bytes));
  }
  const std::vector<MemoryLine> least = least_lines(demand);
  if (sum(least) > limits.bytes) refuse(least, limits);

  Budget budget(limits.bytes - sum(least));
  MemoryPlan plan;
  plan.memory = limits.memory;
  plan.limit_bytes = limits.bytes;
  plan.process_bytes = demand.process_bytes;
  plan.activation_bytes = demand.activation_bytes;
  plan.kv_stage_bytes = demand.kv_stage_bytes;
  const uint64_t kv_wanted =
      std::max(demand.kv_least_bytes,
               std::min(demand.kv_wanted_bytes, limits.kv_bytes.value_or(UINT64_MAX)));
  const auto give_to_kv = [&] {
    plan.kv_bytes = demand.kv_least_bytes + budget.take_up_to(kv_wanted - demand.kv_least_bytes);
  };
  const auto give_to = [&](UnitKind kind, int64_t most) {
    const UnitDemand& units = demand.units[index_of(kind)];
    plan.slots[index_of(kind)] =
        units.least + budget.take_pieces(most - units.least, units.buffer_bytes);
  };
  const auto all = [&](UnitKind kind) { return demand.units[index_of(kind)].units; };
  plan.slots[index_of(UnitKind::model)] = demand.units[index_of(UnitKind::model)].least;
  // Keys and values that may lie in host memory come after the weights that all tokens use: either
  // would be brought once a pass, but weights come in one piece, long before something waits for
  // them.
  const bool kv_may_spill = demand.kv_stage_bytes > 0;
  if (!kv_may_spill) give_to_kv();
  for (const UnitKind kind : kUsedByEveryToken) give_to(kind, all(kind));
  if (kv_may_spill) give_to_kv();
  const int64_t experts = all(UnitKind::expert);
  give_to(UnitKind::expert, std::min(experts, limits.expert_slots.value_or(experts)));

  plan.lines.push_back({"program", demand.process_bytes, "code, tokenizer, margin"});
  plan.lines.push_back({"activations", demand.activation_bytes, ""});
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    const UnitDemand& units = demand.units[kind];
    if (units.units == 0) continue;
    plan.lines.push_back({fmt::format("{} weights", unit_kind_name(static_cast<UnitKind>(kind))),
                          static_cast<uint64_t>(plan.slots[kind]) * units.buffer_bytes,
                          resident_remark(plan.slots[kind], units.units)});
  }
  if (demand.shared_bytes > 0) {
    plan.lines.push_back({"shared with the CPU", demand.shared_bytes, ""});
  }
  plan.lines.push_back({"KV cache", plan.kv_bytes, ""});
  if (plan.kv_stage_bytes > 0) plan.lines.push_back({"KV staging", plan.kv_stage_bytes, ""});
  return plan;
}

std::string format_memory_plan(const MemoryPlan& plan) {
  std::string text = fmt::format("{:<18} {:>12}\n", plan.memory, "bytes");
  for (const MemoryLine& line : plan.lines) {
    text += fmt::format("{:<18} {:>12}  {}\n", line.kind, format_bytes(line.bytes), line.remark);
  }
  text += fmt::format("{:<18} {:>12}  of {} allowed\n", "total", format_bytes(plan.total_bytes()),
                      format_bytes(plan.limit_bytes));
  return text;
}

}  // namespace klotski
