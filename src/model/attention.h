#pragma once

// Attention as data: one struct for each kind, and the questions that every kind answers. Only
// forward/ computes with the fields of a kind; all others ask Attention.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/ops.h"
#include "model/cache_layout.h"

namespace klotski {

// RMS norm of queries and keys: over each head or their whole width before rope, with learned
// weights; or over each head after rope, without weights.
enum class HeadNorm { none, per_head, whole, after_rope };

// Softmax attention over the keys and values of every position, with heads of keys and values that
// several neighbouring query heads share (multi-head, grouped-query and multi-query attention).
struct GroupedHeads {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;              // numbers of a head of queries or keys
  std::optional<int64_t> value_dim;  // numbers of a head of values where it is not head_dim
  float scale = 1.0f;                // factor of the scores
  int64_t window = 0;                // sliding window in positions, itself included; 0: everything
  int64_t chunk = 0;      // only positions of the same chunk of so many are seen; 0: everything
  bool rotated = true;    // false: queries and keys do not know their positions
  bool tempered = false;  // queries are scaled by ModelDescription::query_temperature
  bool qkv_bias = false;
  bool output_bias = false;
  bool sinks = false;  // one learned sink score a query head
  float clip = 0.0f;   // queries, keys and values are clamped to [-clip, clip]; 0: not
  HeadNorm norm = HeadNorm::none;

  int64_t query_width() const { return query_heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }
  int64_t value_width() const { return kv_heads * value_dim.value_or(head_dim); }

  // The answers to the questions of Attention.
  std::vector<RowPart> queries() const { return {{"queries", query_width()}}; }
  CacheLayout cache() const { return {{{"keys", key_width()}, {"values", value_width()}}}; }
  int64_t input_width() const { return query_width() + key_width() + value_width(); }
  int64_t output_width() const { return query_heads * value_dim.value_or(head_dim); }
  int64_t query_head_width() const { return head_dim; }
  std::string shape() const;
  bool halve();
};

// Pages of keys and values, as the operations for grouped heads take them.
KvPages keys_and_values(const LayerCache& cache);

// The attention of a layer: one of several kinds. A new kind is a struct of its own in `kind`.
struct Attention {
  Attention() = default;
  Attention(GroupedHeads heads) : kind(heads) {}

  std::variant<GroupedHeads> kind;

  // The fields of a kind; an exception where attention is of another one.
  GroupedHeads& grouped_heads() { return std::get<GroupedHeads>(kind); }
  const GroupedHeads& grouped_heads() const { return std::get<GroupedHeads>(kind); }

  // Layout of the data that a sequence keeps between steps.
  CacheLayout cache() const;
  // Parts of a new row that attention reads. queries(): parts that only this step needs. inputs():
  // these, then the parts that the cache keeps, in the order of its layout.
  std::vector<RowPart> queries() const;
  std::vector<RowPart> inputs() const;
  int64_t input_width() const;   // numbers of all inputs of a row
  int64_t output_width() const;  // numbers of a row that attention gives, before its projection
  // Numbers of a query head: operations take memory by it.
  int64_t query_head_width() const;
  // All that the time of attention depends on, as text. Equal texts: equally fast.
  std::string shape() const;
  // Leaves half of the heads away, for a smaller sample of it; false where that cannot be.
  bool halve();
};

}  // namespace klotski
