#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tier.h"
#include "kernels/ops.h"
#include "model/units.h"
#include "schedule/division.h"
#include "schedule/strategy_properties.h"

namespace klotski {

std::string_view precision_name(Precision precision);

// How many sequences run together. Written by the search for a group, read by whoever forms passes.
struct GroupShape {
  int64_t micro_batch = 16;        // most sequences computed by one kernel call
  int64_t micro_batch_rows = 512;  // most tokens computed by one kernel call
  int64_t micro_batches = 4;       // n: micro-batches that share one load of the weights
  // While all sequences of a group decode, micro-batches are merged into ones of up to this many
  // sequences: a kernel call costs about as much for few rows as for some more.
  int64_t decode_batch = 0;
  // Drafted tokens of a sequence that a pass verifies at most, in a row each beside the row of the
  // sequence's last token (speculative decoding); 0: none are drafted.
  int64_t draft_tokens = 0;

  int64_t sequences() const { return micro_batch * micro_batches; }
  // Most rows of a group in which all sequences decode, drafts included.
  int64_t decode_rows() const {
    return std::max(sequences(), std::min(sequences() * (1 + draft_tokens), rows()));
  }
  int64_t rows() const { return micro_batch_rows * micro_batches; }
};

// The slots and the keys and values of one memory.
struct TierMemory {
  TierId tier = kComputeTier;
  TierId source = kDiskTier;                // the tier that its weights come from
  std::array<int64_t, kUnitKinds> slots{};  // buffers, by kind of unit
  uint64_t kv_bytes = 0;                    // keys and values of a compute tier that lie in it
  uint64_t kv_spill_bytes = 0;              // keys and values that lie in its source
  // Bytes among kv_bytes and among kv_spill_bytes for states of fixed size, which some layers keep
  // of a sequence in place of keys and values.
  uint64_t state_bytes = 0;
  uint64_t state_spill_bytes = 0;
};

// The contents of every memory. Written by the memory plan, read by residency, cache and executor.
struct TierLayout {
  // Memories with slots, nearest to the processors first, each before its source: a second device
  // or a remote memory is one more entry. Disks, where ways begin, have no slots and no entry.
  std::vector<TierMemory> tiers = {TierMemory{}};
  // A group of more than rows_in_place rows takes the memory of the last lent_slots expert slots
  // for its rows, and to compute with, while it runs; the experts in them have to be loaded again.
  int64_t lent_slots = 0;
  int64_t rows_in_place = 0;
  int64_t kv_stages = 0;  // buffers through which spilled keys and values pass: none, or two and up
  uint64_t kv_stage_bytes = 0;    // bytes of one stage
  int64_t kv_sequence_pages = 0;  // with stages: most pages of a sequence that passes through them

  // The memory of the first compute tier, where the rows of a group lie.
  const TierMemory& compute() const { return tiers.front(); }
  TierMemory& compute() { return tiers.front(); }
  // A memory of the list; null where the tier has none.
  const TierMemory* find(TierId tier) const;
  TierMemory* find(TierId tier);
  // The memory that a tier's weights come from; null where they come from a disk.
  const TierMemory* source_of(TierId tier) const;
  // The program's memory, where a device is the compute tier; null where there is no device.
  const TierMemory* host() const { return find(kHostTier); }
  // Lets the compute tier, a device's, have its weights from the program's memory with these slots.
  void set_host_slots(std::array<int64_t, kUnitKinds> slots);
  int64_t slots_lent_to(int64_t rows) const { return rows > rows_in_place ? lent_slots : 0; }
  // The share of all keys and values that find no room in the compute tier.
  double spilled_share() const {
    const auto spilled = static_cast<double>(compute().kv_spill_bytes);
    return spilled > 0 ? spilled / (spilled + static_cast<double>(compute().kv_bytes)) : 0.0;
  }
};

// The experts that are brought ahead and those that stay. Written by the memory plan and the
// search, read by residency and the predictors.
struct CacheRule {
  int64_t hot_experts = 0;  // K, prefetched a layer; 0: as many as a token chooses
  int path_length = 1;      // l: layers whose choices foretell the next
  std::string eviction = "furthest";
  // Experts that stay in the compute tier once they are there, as long as other experts can be
  // evicted instead: the most chosen ones of each layer, equally many of every layer as far as that
  // goes, so that no layer has to wait for all of its experts.
  int64_t kept_experts = 0;
  // Share of a layer's choices that goes to each expert, by layer and expert; empty: not known.
  std::vector<std::vector<double>> expert_shares{};
  // Experts that are brought before they are used, at most, so that other experts keep their slots;
  // 0: as many as there are slots. Loads that are certain to be used do not count. The limit is off
  // while slots are lent: with that many rows an expert computes longer than the next takes to
  // come.
  int64_t loads_ahead = 0;

  // K of a layer whose tokens choose top_k experts.
  int64_t hot_count(int64_t top_k) const { return hot_experts > 0 ? hot_experts : top_k; }
};

// The work of each processor. Written by the search with measured costs, read by the schedules.
struct WorkDivision {
  // A group of up to this many rows shares its experts between device and CPU, by these costs of
  // each layer; 0, or no costs: the device computes all.
  int64_t shared_rows = 0;
  LayerCosts costs{};
  // The device may compute a slice of an expert, up to kMostSlice, while the CPU computes the rest.
  bool slices_experts = false;
  // The tier whose processor computes the attention of decoding rows. If it is not the compute tier
  // all keys and values lie there.
  TierId decode_attention = kComputeTier;

  // Whether another processor than that of the compute tier attends.
  bool attends_elsewhere() const { return decode_attention != kComputeTier; }
  void attend_at_host(bool at_host) { decode_attention = at_host ? kHostTier : kComputeTier; }
};

// Lossy: attention to the first `sinks` and the last `window` positions only; window 0: to all.
struct VisibleWindow {
  int64_t sinks = 0;
  int64_t window = 0;

  // The positions that attention sees of this many.
  double attended(double positions) const {
    const auto most = static_cast<double>(sinks + window);
    return window > 0 ? std::min(positions, most) : positions;
  }
};

// The division of work and memory: decided once, then only read.
struct Policy {
  Strategy strategy = Strategy::klotski;
  Precision precision = Precision::bf16;  // precision of products, keys and values
  GroupShape group{};
  TierLayout layout{};
  CacheRule cache{};
  WorkDivision division{};
  VisibleWindow visible{};

  // Micro-batches that are merged while all sequences decode. None are where keys and values pass
  // through stages or another processor attends: one micro-batch's are on their way while another
  // is computed.
  int64_t merged_batches() const {
    if (layout.kv_stages > 0 || division.attends_elsewhere()) return 1;
    const int64_t most = std::min(group.decode_batch, group.micro_batch_rows) / group.micro_batch;
    return std::clamp<int64_t>(most, 1, group.micro_batches);
  }
  // Merged micro-batches of a decoding pass over the first `of` micro-batches.
  int64_t decode_batches(int64_t of) const {
    return (std::min(of, group.micro_batches) + merged_batches() - 1) / merged_batches();
  }
  int64_t decode_batches() const { return decode_batches(group.micro_batches); }
  // Sequences of one merged micro-batch.
  int64_t decode_sequences() const { return group.micro_batch * merged_batches(); }
  // Most rows of one merged micro-batch while all sequences decode, drafts included.
  int64_t decode_batch_rows() const {
    return std::max(decode_sequences(), std::min(decode_sequences() * (1 + group.draft_tokens),
                                                 group.micro_batch_rows));
  }
  // Most rows of a group whose rows lie in memory of their own, not in lent slots.
  int64_t most_own_rows() const {
    return layout.lent_slots > 0 ? layout.rows_in_place : group.rows();
  }
};

// The group a strategy works on: `simple` knows no more than one micro-batch.
Policy with_strategy(Policy policy, Strategy strategy);

}  // namespace klotski
