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

// Heads of a layer's attention as its cache has them.
struct HeadCounts {
  int64_t query = 0;
  int64_t kv = 0;         // heads of keys; latent attention has one, common to all queries
  int64_t key_width = 0;  // numbers of such a head
};

// RMS norm of queries and keys: over each head or their whole width before rope, with learned
// weights; or over each head after rope, without weights or with learned ones.
enum class HeadNorm { none, per_head, whole, after_rope, learned_after_rope };

// A learned bias of scores by the distance from a query to a key. Small distances have a bucket
// each, larger ones share buckets up to `most_distance`, where distances end in one bucket.
struct RelativeBias {
  int64_t buckets = 0;
  int64_t most_distance = 0;
  bool both_ways = false;  // half of the buckets are for keys that follow the query

  // The bucket of a key that many positions after the query, before it where negative.
  int64_t bucket(int64_t distance) const;
};

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
  // Whether results are multiplied by the sigmoid of gates of their own. Each head of the query
  // projection then has its queries first and its gates after them.
  bool output_gate = false;
  HeadNorm norm = HeadNorm::none;
  bool sees_all = false;  // every token of the encoder's input sees all of it
  // Whether attention over the encoder's output follows, with as many heads of the same widths. The
  // cache has its keys and values at the positions of the encoder's input.
  bool crosses = false;
  std::optional<RelativeBias> relative_bias;

  int64_t query_rows() const { return output_gate ? 2 * query_width() : query_width(); }
  int64_t query_width() const { return query_heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }
  int64_t value_width() const { return kv_heads * value_dim.value_or(head_dim); }

  // The answers to the questions of Attention.
  std::vector<RowPart> queries() const;
  CacheLayout cache() const { return {{{"keys", key_width()}, {"values", value_width()}}}; }
  int64_t input_width() const { return query_rows() + key_width() + value_width(); }
  int64_t output_width() const { return query_heads * value_dim.value_or(head_dim); }
  int64_t projected_width() const { return output_width(); }
  int64_t widest_projected() const { return projected_width(); }
  int64_t temporary_width() const { return output_gate ? query_rows() : 0; }
  int64_t query_head_width() const { return head_dim; }
  HeadCounts heads() const { return {query_heads, kv_heads, head_dim}; }
  std::string shape() const;
  bool halve();
};

// Softmax attention over a latent vector of every position, from which each head has its own keys
// and values (multi-head latent attention). The latent vector and a rotated key, both common to all
// heads, are all that the cache keeps. A score is the product of a query with a head's key, W_uk *
// latent, or of W_uk^T * query with the latent vector itself: attention is computed in this second,
// absorbed form, as heads that share one key of latent_rank + rotated_dims numbers, whose first
// latent_rank numbers are also the value; W_uv turns the results of a head into its values.
struct LatentAttention {
  int64_t query_heads = 0;
  int64_t query_rank = 0;      // width that queries are projected through; 0: one projection
  int64_t latent_rank = 0;     // numbers of the latent vector
  int64_t plain_dims = 0;      // numbers of a query head without a position: they meet the latent
  int64_t rotated_dims = 0;    // numbers of a query head that meet the rotated key
  int64_t value_dim = 0;       // numbers of a head's values
  float scale = 1.0f;          // factor of the scores
  float norm_epsilon = 1e-6f;  // epsilon of the norms of query_rank and latent_rank
  bool input_bias = false;     // biases of the projections to query_rank and to the cache
  bool output_bias = false;
  // Whether W_uk, transposed, and W_uv are tensors of their own, as in GGUF files.
  bool apart = false;

  int64_t query_dim() const { return plain_dims + rotated_dims; }  // numbers of a query head
  int64_t key_width() const { return latent_rank + rotated_dims; }
  int64_t head_rows() const { return plain_dims + value_dim; }  // rows of W_uk and W_uv of a head

  // The answers to the questions of Attention.
  std::vector<RowPart> queries() const { return {{"queries", query_heads * key_width()}}; }
  CacheLayout cache() const { return {{{"latent", key_width()}}}; }
  int64_t input_width() const { return (query_heads + 1) * key_width(); }
  int64_t output_width() const { return query_heads * latent_rank; }
  int64_t projected_width() const { return query_heads * value_dim; }
  int64_t widest_projected() const;
  int64_t temporary_width() const;
  int64_t query_head_width() const { return key_width(); }
  HeadCounts heads() const { return {query_heads, 1, key_width()}; }
  std::string shape() const;
  bool halve();
};

// Linear attention by the gated delta rule (kernels/ops.h): instead of keys and values of every
// position, each value head keeps one matrix that every token decays and corrects. Queries, keys
// and values pass through a causal convolution before, and results through a gated norm after. The
// state of a sequence is the matrices, [value_heads][key_dim][value_dim], and the last inputs of
// the convolution, [taps - 1][mixed_width()], in float32.
struct GatedDeltaNet {
  int64_t key_heads = 0;    // heads of queries and keys
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;      // numbers of a head of queries or keys
  int64_t value_dim = 0;
  int64_t taps = 1;  // tokens that the convolution sees, the token itself included
  Activation activation = Activation::silu;  // activation of the convolution

  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t mixed_width() const { return 2 * key_width() + value_width(); }
  int64_t matrix_numbers() const { return value_heads * key_dim * value_dim; }
  int64_t state_numbers() const { return matrix_numbers() + (taps - 1) * mixed_width(); }
  // Rows of the projection to queries, keys, values and gates, and of the one to the two rates.
  int64_t projection_rows() const { return mixed_width() + value_width(); }
  int64_t rate_rows() const { return 2 * value_heads; }

  // The answers to the questions of Attention.
  std::vector<RowPart> queries() const;
  CacheLayout cache() const;
  int64_t input_width() const { return projection_rows() + rate_rows(); }
  int64_t output_width() const { return value_width(); }
  int64_t projected_width() const { return output_width(); }
  int64_t widest_projected() const { return projected_width(); }
  int64_t temporary_width() const { return projection_rows() + rate_rows(); }
  int64_t query_head_width() const { return key_dim; }
  HeadCounts heads() const { return {value_heads, key_heads, key_dim}; }
  std::string shape() const;
  bool halve();
};

// Pages of keys and values, as the operations for grouped heads take them.
KvPages keys_and_values(const LayerCache& cache);
// Pages of keys of which values are a part, as latent attention keeps them.
KvPages keys_with_values(const LayerCache& cache);

// The attention of a layer: one of several kinds. A new kind is a struct of its own in `kind`.
struct Attention {
  Attention() = default;
  Attention(GroupedHeads heads) : kind(heads) {}
  Attention(LatentAttention latent) : kind(latent) {}
  Attention(GatedDeltaNet net) : kind(net) {}

  std::variant<GroupedHeads, LatentAttention, GatedDeltaNet> kind;

  // The fields of a kind; an exception where attention is of another one.
  GroupedHeads& grouped_heads() { return std::get<GroupedHeads>(kind); }
  const GroupedHeads& grouped_heads() const { return std::get<GroupedHeads>(kind); }
  LatentAttention& latent() { return std::get<LatentAttention>(kind); }
  const LatentAttention& latent() const { return std::get<LatentAttention>(kind); }
  const GatedDeltaNet& delta_net() const { return std::get<GatedDeltaNet>(kind); }

  // Layout of the data that a sequence keeps between steps.
  CacheLayout cache() const;
  // Parts of a new row that attention reads. queries(): parts that only this step needs. inputs():
  // these, then the parts that the cache keeps, in the order of its layout.
  std::vector<RowPart> queries() const;
  std::vector<RowPart> inputs() const;
  int64_t input_width() const;      // numbers of all inputs of a row
  int64_t output_width() const;     // numbers of a row that attention gives, before its projection
  int64_t projected_width() const;  // numbers of a row that its output projection reads
  // Numbers of the widest row that a projection reads, other than the layer's own rows.
  int64_t widest_projected() const;
  // Numbers of a row that projections hold for themselves, before attention or after it.
  int64_t temporary_width() const;
  // Numbers of a query head: operations take memory by it.
  int64_t query_head_width() const;
  HeadCounts heads() const;
  // All that the time of attention depends on, as text. Equal texts: equally fast.
  std::string shape() const;
  // Leaves half of the heads away, for a smaller sample of it; false where that cannot be.
  bool halve();
};

}  // namespace klotski
