#pragma once

// A model as data. A family (model/families/) turns a config.json into a description; the
// arithmetic in forward/ reads only the description. Where a family computes differently it sets a
// field here: nothing else in the engine knows a model's name.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kernels/ops.h"
#include "model/attention.h"
#include "tensor/dtype.h"

namespace klotski {

enum class RopeKind { plain, linear, dynamic, yarn, llama3, longrope };

// Rotary position embedding. The fields after `kind` matter for the kinds that their comments name.
struct Rope {
  int64_t rotated_dims = 0;  // numbers of each head that are rotated
  bool interleaved = false;
  double base = 10000.0;
  RopeKind kind = RopeKind::plain;
  double factor = 1.0;                // all but plain and longrope
  int64_t original_positions = 0;     // trained context: dynamic, yarn, llama3, longrope
  double attention_factor = 1.0;      // factor of sine and cosine: yarn, longrope
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;             // yarn
  bool truncate = true;               // yarn: whole dimensions as bounds of the ramp
  double low_frequency_factor = 1;    // llama3
  double high_frequency_factor = 4;   // llama3
  std::vector<double> short_factors;  // longrope, one a rotated pair
  std::vector<double> long_factors;   // longrope
};

// Scale of queries by their position p: 1 + growth * log(1 + floor((p + 1) / step_positions)).
struct QueryTemperature {
  int64_t step_positions = 1;
  double growth = 0.0;
};

// An expert that runs for every token, besides the routed experts.
struct SharedExpert {
  int64_t width = 0;
  bool gated = false;  // its output is scaled by the sigmoid of a learned projection of the token
  // Whether it reads a norm of its own of the sum after attention, in place of the rows that the
  // routed experts read.
  bool own_norm = false;
};

// A routed feed-forward part; a dense one is the case of one expert with weight one.
struct FeedForward {
  int64_t experts = 1;
  int64_t width = 0;  // width of one expert
  Activation activation = Activation::silu;
  ClampedSwiglu swiglu;  // for an activation of this name
  bool gated = true;     // false: an expert is down(activation(gate(x))), without an up
  bool routed = false;   // false: every token goes to the only expert
  RouterRule router;
  bool selection_bias = false;  // a learned bias decides the choice, not the weights
  bool router_bias = false;     // a learned bias of the router's logits
  // Experts that compute in place of those that the router chooses, with the weights of its
  // choices, best first; empty: the chosen ones do.
  std::vector<ExpertId> computing{};
  bool scales_inputs = false;  // weights of the choices scale experts' inputs, not their outputs
  bool expert_bias = false;    // learned biases of gate, up and down of the experts
  std::optional<SharedExpert> shared;
  // Whether router and routed experts read the rows that attention reads, not the sum after it.
  bool beside_attention = false;
};

enum class NormKind { rms, layer };  // layer: the mean is subtracted first

struct Layer {
  Attention attention;
  FeedForward feed_forward;
};

// The purpose of a stored tensor. A family names each in the form it has in the checkpoint.
enum class Role {
  embedding,
  final_norm,
  final_norm_bias,
  output,
  output_bias,
  attention_norm,
  attention_norm_bias,
  query,
  query_bias,
  key,
  key_bias,
  value,
  value_bias,
  position_bias,  // [buckets][query heads] of GroupedHeads::relative_bias
  query_norm,
  key_norm,
  sinks,
  query_down,  // to query_rank numbers of latent attention
  query_down_bias,
  query_down_norm,
  query_up,     // from these to the query heads
  latent_down,  // to the latent vector and the rotated key
  latent_down_bias,
  latent_norm,
  latent_up,        // W_uk and W_uv, head by head
  latent_key_up,    // W_uk, transposed, and
  latent_value_up,  // W_uv, where they lie apart
  delta_input,      // to queries, keys, values and gates of a gated delta net, key head by key head
  delta_rates,      // to its two rates, key head by key head
  delta_convolution,  // [channels][taps]
  delta_log_decay,
  delta_step_bias,
  delta_norm,  // norm of each head of results, before their gates
  delta_output,
  attention_output,
  attention_output_bias,
  encoder_norm,  // the encoder's final norm, before the keys and values of cross attention
  encoder_norm_bias,
  cross_norm,
  cross_norm_bias,
  cross_query,
  cross_query_bias,
  cross_key,
  cross_key_bias,
  cross_value,
  cross_value_bias,
  cross_output,
  cross_output_bias,
  feed_forward_norm,
  feed_forward_norm_bias,
  router,
  router_bias,
  selection_bias,
  shared_norm,  // the norm behind SharedExpert::own_norm
  shared_gate,  // gate of its gated activation
  shared_up,
  shared_down,
  shared_scale,  // the projection behind SharedExpert::gated
  expert_gate,
  expert_up,
  expert_down,
  expert_gate_bias,
  expert_up_bias,
  expert_down_bias,
  dense_gate,  // the only expert of a layer that is not routed
  dense_up,
  dense_down,
  dense_gate_bias,
  dense_up_bias,
  dense_down_bias,
  count_,
};

struct TensorPattern {
  Role role;
  // {layer} and {expert} stand for the numbers. In a model with an encoder, {half} is "encoder" or
  // "decoder", each with layers from 0, and {attentions} the number of attentions of a layer.
  std::string_view pattern;
  // Whether the rows of an expert's gate and up alternate in one fused tensor, gate first;
  // otherwise all rows of gate come first.
  bool interleaved = false;
  // Whether the tensor has an expert's matrix as [columns][rows] where it has plain elements. A
  // matrix of a packed format lies in rows all the same.
  bool transposed = false;
};

// The encoder of a model with an encoder and a decoder. The model's layers are the encoder's, then
// the decoder's. A sequence begins with the encoder's input, which one pass computes as a whole:
// it goes through the encoder's layers and leaves the cross keys and values of every decoder layer
// at its positions. The decoder's tokens follow, and go through the decoder's layers alone.
struct Encoder {
  int64_t layers = 0;
  TokenId start_token = 0;  // the decoder's first token
  bool translates = false;  // the decoder's second token is the language to translate to
};

// The layers that a pass runs, first .. end - 1. Only layers before feed_forward_end run their
// feed-forward part: the encoder's input leaves its cross keys and values in the decoder's layers.
struct PassLayers {
  int64_t first = 0;
  int64_t feed_forward_end = 0;
  int64_t end = 0;

  bool feeds_forward(LayerId layer) const { return layer.value < feed_forward_end; }
};

struct ModelDescription {
  std::string family;
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t max_positions = 0;
  NormKind norm = NormKind::rms;  // norms of layers and the last one; heads have RMS norms
  bool norm_bias = false;
  float norm_epsilon = 1e-6f;
  // Number added to the weights of norms of rows and heads: 1 where they are stored around zero.
  float norm_offset = 0.0f;
  float embedding_scale = 1.0f;  // factor of embeddings
  float residual_scale = 1.0f;   // factor of all that a layer adds to its input
  float logit_scale = 1.0f;      // factor of logits
  bool output_bias = false;      // the output projection has a bias
  bool tied_embeddings = false;  // the output projection is the embedding table
  Rope rope;
  std::optional<QueryTemperature> query_temperature;  // for layers whose attention is tempered
  std::vector<Layer> layers;
  std::optional<Encoder> encoder;  // none: all layers are a decoder's
  // Positions are added to embeddings as sines and cosines: the first position counts as this
  // number. None: embeddings do not know their positions.
  std::optional<int64_t> first_sinusoid;
  std::vector<TokenId> end_tokens;  // generation stops at any of these
  std::optional<TokenId> begin_token;
  std::vector<TensorPattern> tensor_names;  // the first entry of a role counts
  // Formats that matrices may have because the configuration says so (WeightFormat::is_stated).
  std::vector<DType> stated_formats;

  const Layer& layer(LayerId id) const { return layers[static_cast<size_t>(id.value)]; }
  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  int64_t encoder_layers() const { return encoder ? encoder->layers : 0; }
  // The layers that a pass runs: of the encoder's input where it encodes, else of other tokens.
  PassLayers pass_layers(bool encodes) const {
    return encodes ? PassLayers{0, encoder_layers(), layer_count()}
                   : PassLayers{encoder_layers(), layer_count(), layer_count()};
  }
};

}  // namespace klotski
