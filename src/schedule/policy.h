#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "model/units.h"
#include "schedule/division.h"

namespace klotski {

// In the order of the paper's ablation, each adding one idea to the one before; then what needs a
// device and the CPU beside it.
enum class Strategy { simple, multi_batch, hot_prefetch, klotski, cgopipe, hybrid, count_ };

inline constexpr size_t kStrategies = static_cast<size_t>(Strategy::count_);

std::string_view strategy_name(Strategy strategy);
// Without one they are what they are built on: multi-batch and klotski.
inline bool needs_device(Strategy strategy) {
  return strategy == Strategy::cgopipe || strategy == Strategy::hybrid;
}
std::optional<Strategy> strategy_from_name(std::string_view name);

// In words, with what else names the way work is divided.
std::string describe_strategy(Strategy strategy, bool cpu_attention);

std::string_view precision_name(Precision precision);

// How work is divided and what lies where: decided once, then only read.
struct Policy {
  Strategy strategy = Strategy::klotski;
  int64_t micro_batch = 16;        // most sequences computed by one kernel call
  int64_t micro_batch_rows = 512;  // most tokens computed by one kernel call
  int64_t micro_batches = 4;       // n: how many share one load of the weights
  // While all of a group decode, micro-batches are merged into ones of up to so many sequences:
  // each call of a kernel costs about the same for few rows as for some more.
  int64_t decode_batch = 0;
  int64_t hot_experts = 0;  // K, prefetched a layer; 0: as many as a token chooses
  int path_length = 1;      // l: layers whose choices foretell the next
  std::string eviction = "furthest";
  Precision precision = Precision::bf16;    // of products; keys and values are kept in it too
  std::array<int64_t, kUnitKinds> slots{};  // buffers of the compute tier, by kind of unit
  // Buffers of the memory below, where the compute tier is a device's; none: weights come from disk
  // straight into the compute tier.
  std::array<int64_t, kUnitKinds> slots_below{};
  // Experts that stay in the compute tier once they are there, as long as there are others to take
  // the place of: so many, the same number of every layer as far as that goes, so that no layer has
  // to wait for all of its experts; of each layer those that are chosen most.
  int64_t kept_experts = 0;
  // By layer and expert, the share of a layer's choices that goes to each; empty: not known.
  std::vector<std::vector<double>> expert_shares{};
  // Experts that are brought before they are used, at most, so that the others keep their slots; 0:
  // as many as there are slots. What is certain to be used counts not; nor does it hold while slots
  // are lent: with so many rows an expert computes longer than the next one takes to come.
  int64_t loads_ahead = 0;
  // A group of more than rows_in_place rows takes the memory of the last lent_slots expert slots
  // for its rows, and to compute with, while it runs; what they held has to be loaded again.
  int64_t lent_slots = 0;
  int64_t rows_in_place = 0;
  // A group of up to so many rows shares its experts with the CPU beside a device, by these costs
  // of each layer; 0, or no costs: the device computes all.
  int64_t shared_rows = 0;
  LayerCosts costs{};
  // Of an expert the device may compute a slice, up to kMostSlice, while the CPU computes the rest.
  bool slices_experts = false;
  uint64_t kv_bytes = 0;        // of the compute tier
  uint64_t kv_spill_bytes = 0;  // of the tier below
  // Attention of decoding rows is computed by the CPU beside a device, where keys and values lie:
  // all of them below.
  bool cpu_attention = false;
  int64_t kv_stages = 0;  // buffers through which spilled keys and values pass: none, or two and up
  uint64_t kv_stage_bytes = 0;    // of one of them
  int64_t kv_sequence_pages = 0;  // with stages: most pages of a sequence that passes through them
  // Lossy: attention to the first `sinks` and the last `window` positions only; window 0: to all.
  int64_t attention_sinks = 0;
  int64_t attention_window = 0;

  // Of so many positions, those that attention sees.
  double attended(double positions) const {
    const auto most = static_cast<double>(attention_sinks + attention_window);
    return attention_window > 0 ? std::min(positions, most) : positions;
  }
  // K of a layer whose tokens choose so many.
  int64_t hot_count(int64_t top_k) const { return hot_experts > 0 ? hot_experts : top_k; }
  bool memory_below() const { return slots_below[index_of(UnitKind::model)] > 0; }
  int64_t slots_lent_to(int64_t rows) const { return rows > rows_in_place ? lent_slots : 0; }
  // Of all keys and values, those that find no room in the compute tier.
  double spilled_share() const {
    const auto spilled = static_cast<double>(kv_spill_bytes);
    return spilled > 0 ? spilled / (spilled + static_cast<double>(kv_bytes)) : 0.0;
  }
  int64_t group_sequences() const { return micro_batch * micro_batches; }
  // How many micro-batches are merged. Where keys and values pass through stages, or the CPU
  // attends to them, those of one are on their way while another is computed.
  int64_t merged_batches() const {
    if (kv_stages > 0 || cpu_attention) return 1;
    const int64_t most = std::min(decode_batch, micro_batch_rows) / micro_batch;
    return std::clamp<int64_t>(most, 1, micro_batches);
  }
  // Of a pass in which all rows decode, those of the first so many micro-batches.
  int64_t decode_batches(int64_t of) const {
    return (std::min(of, micro_batches) + merged_batches() - 1) / merged_batches();
  }
  int64_t decode_batches() const { return decode_batches(micro_batches); }
  int64_t decode_sequences() const { return micro_batch * merged_batches(); }  // of one of them
  int64_t group_rows() const { return micro_batch_rows * micro_batches; }
  // Of the groups whose rows lie in memory of their own, not in lent slots: the most rows.
  int64_t most_own_rows() const { return lent_slots > 0 ? rows_in_place : group_rows(); }
};

// Of a layer, those with the larger share first; equals as they are numbered.
std::vector<ExpertId> by_share(const std::vector<double>& shares);

// The group a strategy works on: `simple` knows no more than one micro-batch.
Policy with_strategy(Policy policy, Strategy strategy);

}  // namespace klotski
