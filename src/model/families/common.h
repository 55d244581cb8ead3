#pragma once

// The parts of a config.json that families share.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/description.h"

namespace klotski {

struct GgufModel;

// Bounds that keep the number of parameters (layers x experts x 3 x width^2) and the bytes of a KV
// cache within 63 bits.
inline constexpr int64_t kMaxWidth = 1 << 18;
inline constexpr int64_t kMaxLayers = 1 << 10;
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
inline constexpr int64_t kMaxVocabulary = 1 << 24;

// Vocabulary, widths, norm epsilon, tied embeddings, special tokens and rope; no layers yet.
// `default_rope_base` is the family's where the config names none.
ModelDescription describe_common(const JsonFields& config, double default_rope_base);
// describe_common() for heads of which `rotated_dims` numbers are rotated.
ModelDescription describe_common(const JsonFields& config, double default_rope_base,
                                 int64_t rotated_dims);

// Numbers of a head that rope rotates: a share of them that is the field `partial_rotary_factor` of
// `rope_parameters` or, before, of the top level.
int64_t rotated_dims(const JsonFields& config, int64_t head_dim, double fallback);

int64_t layer_count(const JsonFields& config);

// Grouped-query attention by the usual field names, checked for divisibility.
GroupedHeads describe_attention(const JsonFields& config);

// `rope_parameters` (today), or `rope_theta` and `rope_scaling` at the top level (before).
// A family that rotates only part of a head says how much of it.
Rope describe_rope(const JsonFields& config, int64_t rotated_dims, double default_base);

// End tokens and begin token.
void describe_tokens(const JsonFields& config, ModelDescription& description);

Activation describe_activation(const JsonFields& config, std::string_view key = "hidden_act");

// Refuses a config.json that leaves one of these fields out.
void require_present(const JsonFields& config, std::initializer_list<std::string_view> keys);

// Refuses a rope that turns only some of a head's numbers, in a family that turns all of them.
void refuse_partial_rotation(const JsonFields& config);

// The field `layer_types`, one of `known` a layer; empty where the config has none.
std::vector<std::string> layer_types(const JsonFields& config,
                                     std::initializer_list<std::string_view> known);

// The number of experts under whichever of its names the config uses.
int64_t expert_count(const JsonFields& config);

// A feed-forward part without a router, `width` wide.
FeedForward dense_part(const JsonFields& config, int64_t width);

// Refuses a field that is true: this program does not compute what it switches on.
void refuse_switch(const JsonFields& config, std::string_view key);

// Router of `experts` experts: softmax scores and `num_experts_per_tok` choices.
RouterRule describe_softmax_router(const JsonFields& config, int64_t experts);

// The factor by which yarn enlarges sine, cosine or scores of a rope stretched `factor` times.
double yarn_magnitude(double factor, double mscale);

// Routed experts as wide as a field says, whose softmax weights are renormalised over the chosen
// ones.
FeedForward describe_softmax_experts(const JsonFields& config,
                                     std::string_view width_key = "intermediate_size");

// The layers of a model whose every layer looks like `layer`.
std::vector<Layer> repeat_layer(const JsonFields& config, const Layer& layer);

// Which layers of an encoder or a decoder are routed: every step-th, the first one at `first`; none
// where the step is 0.
struct SparseLayers {
  int64_t layers = 0;
  int64_t step = 0;
  int64_t first = 0;
};
// Appends layers of an encoder or a decoder.
void add_sparse_layers(std::vector<Layer>& to, const SparseLayers& sparse, const Layer& layer,
                       const FeedForward& routed);

// Sets the fields of a GGUF model's routers, groups of experts and shared experts, by the names
// that DeepSeek and those after it have for them.
void set_gguf_routing(const GgufModel& model, Json& config);

// Sets the fields of a GGUF model's config.json that say which numbers of a head rope rotates; all
// where the metadata do not say it.
void set_gguf_rotation(const GgufModel& model, Json& config);

// Refuses routers that are not computed in float32.
void refuse_other_router_types(const JsonFields& config);

}  // namespace klotski
