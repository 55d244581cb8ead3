#include "model/tensors.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

std::string replaced(std::string text, std::string_view mark, std::string_view by) {
  const size_t at = text.find(mark);
  return at == std::string::npos ? text : text.replace(at, mark.size(), by);
}

// Collects the specs of one place of the model.
class Specs {
 public:
  Specs(const ModelDescription& model, LayerId layer, ExpertId expert)
      : model_(model), layer_(layer), expert_(expert) {}

  void add(Role role, Shape shape, int64_t stacked = 1) {
    specs_.push_back({role, name_of(role), std::move(shape), std::nullopt, stacked});
  }
  // Tensors that all layers of the encoder, or of the decoder, have in common.
  void mark_common(size_t from) {
    const bool first = layer_.value == 0 || layer_.value == model_.encoder_layers();
    for (size_t i = from; i < specs_.size(); ++i) specs_[i].repeated = !first;
  }
  size_t size() const { return specs_.size(); }
  void add_if(bool condition, Role role, Shape shape) {
    if (condition) add(role, std::move(shape));
  }
  // A norm over whole rows, with its bias where the model's norms have one.
  void add_norm(Role weight, Role bias) {
    add(weight, {model_.hidden});
    add_if(model_.norm_bias, bias, {model_.hidden});
  }
  // A projection with its bias where it has one.
  void add_projection(std::pair<Role, Role> weight_and_bias, bool has_bias, Shape shape) {
    add_if(has_bias, weight_and_bias.second, {shape[0]});
    add(weight_and_bias.first, std::move(shape));
  }
  // A tensor of an expert, which may be a slice of a tensor that others of the layer share.
  void add_expert(Role role, Shape shape) { add_slice(role, role, false, std::move(shape)); }
  // Two tensors of an expert that may be rows of the same stored matrix.
  void add_expert_pair(Role first, Role second, const Shape& shape) {
    add_slice(first, second, false, shape);
    add_slice(second, first, true, shape);
  }
  // Three matrices with as many columns, whose rows may follow each other in one stored matrix.
  void add_stacked(const std::array<std::pair<Role, int64_t>, 3>& matrices, int64_t columns) {
    const bool together =
        pattern_of(matrices[0].first).pattern == pattern_of(matrices[1].first).pattern;
    const int64_t all = matrices[0].second + matrices[1].second + matrices[2].second;
    int64_t first = 0;
    for (const auto& [role, rows] : matrices) {
      add(role, {rows, columns});
      if (together) specs_.back().slice = {.rows = all, .first_row = first};
      first += rows;
    }
  }
  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  void add_slice(Role role, Role partner, bool second, Shape shape) {
    const TensorPattern& entry = pattern_of(role);
    const int64_t rows = shape[0];
    add(role, std::move(shape));
    if (entry.pattern.find("{expert}") != std::string_view::npos) return;
    const bool fused = role != partner && pattern_of(partner).pattern == entry.pattern;
    specs_.back().slice = {.matrices = model_.layer(layer_).feed_forward.experts,
                           .index = expert_.value,
                           .rows = fused ? 2 * rows : rows,
                           .first_row = fused && second ? rows : 0,
                           .interleaved = fused && entry.interleaved,
                           .transposed = entry.transposed};
  }
  const TensorPattern& pattern_of(Role role) const {
    for (const TensorPattern& entry : model_.tensor_names) {
      if (entry.role == role) return entry;
    }
    fail(ErrorKind::internal, "the family {} names no tensor for role {}", model_.family,
         static_cast<int>(role));
  }
  std::string name_of(Role role) const {
    std::string name(pattern_of(role).pattern);
    const auto encoder_layers = static_cast<int32_t>(model_.encoder_layers());
    const bool decodes = layer_.value >= encoder_layers;
    const int32_t layer = decodes ? layer_.value - encoder_layers : layer_.value;
    name = replaced(std::move(name), "{half}", decodes ? "decoder" : "encoder");
    name = replaced(std::move(name), "{attentions}", decodes ? "2" : "1");
    name = replaced(std::move(name), "{layer}", std::to_string(layer));
    return replaced(std::move(name), "{expert}", std::to_string(expert_.value));
  }

  const ModelDescription& model_;
  LayerId layer_;
  ExpertId expert_;
  std::vector<TensorSpec> specs_;
};

void add_cross_attention(Specs& specs, const GroupedHeads& attention, int64_t hidden) {
  const bool bias = attention.qkv_bias;
  const size_t common = specs.size();
  specs.add_norm(Role::encoder_norm, Role::encoder_norm_bias);
  specs.mark_common(common);
  specs.add_norm(Role::cross_norm, Role::cross_norm_bias);
  specs.add_projection({Role::cross_query, Role::cross_query_bias}, bias,
                       {attention.query_width(), hidden});
  specs.add_projection({Role::cross_key, Role::cross_key_bias}, bias,
                       {attention.key_width(), hidden});
  specs.add_projection({Role::cross_value, Role::cross_value_bias}, bias,
                       {attention.value_width(), hidden});
  specs.add_projection({Role::cross_output, Role::cross_output_bias}, attention.output_bias,
                       {hidden, attention.output_width()});
}

void add_attention(Specs& specs, const GroupedHeads& attention, int64_t hidden) {
  const int64_t queries = attention.query_rows();
  const int64_t keys = attention.key_width();
  const int64_t values = attention.value_width();
  specs.add_stacked(
      {std::pair(Role::query, queries), std::pair(Role::key, keys), std::pair(Role::value, values)},
      hidden);
  specs.add_if(attention.qkv_bias, Role::query_bias, {queries});
  specs.add_if(attention.qkv_bias, Role::key_bias, {keys});
  specs.add_if(attention.qkv_bias, Role::value_bias, {values});
  const bool normed = attention.norm != HeadNorm::none && attention.norm != HeadNorm::after_rope;
  const bool per_head = attention.norm != HeadNorm::whole;
  specs.add_if(normed, Role::query_norm, {per_head ? attention.head_dim : queries});
  specs.add_if(normed, Role::key_norm, {per_head ? attention.head_dim : keys});
  specs.add_if(attention.sinks, Role::sinks, {attention.query_heads});
  specs.add(Role::attention_output, {hidden, attention.output_width()});
  specs.add_if(attention.output_bias, Role::attention_output_bias, {hidden});
  if (attention.relative_bias) {
    const size_t common = specs.size();
    specs.add(Role::position_bias, {attention.relative_bias->buckets, attention.query_heads});
    specs.mark_common(common);
  }
  if (attention.crosses) add_cross_attention(specs, attention, hidden);
}

void add_attention(Specs& specs, const LatentAttention& attention, int64_t hidden) {
  const int64_t queries = attention.query_heads * attention.query_dim();
  if (attention.query_rank > 0) {
    specs.add(Role::query_down, {attention.query_rank, hidden});
    specs.add_if(attention.input_bias, Role::query_down_bias, {attention.query_rank});
    specs.add(Role::query_down_norm, {attention.query_rank});
    specs.add(Role::query_up, {queries, attention.query_rank});
  } else {
    specs.add(Role::query, {queries, hidden});
  }
  specs.add(Role::latent_down, {attention.key_width(), hidden});
  specs.add_if(attention.input_bias, Role::latent_down_bias, {attention.key_width()});
  specs.add(Role::latent_norm, {attention.latent_rank});
  const int64_t heads = attention.query_heads;
  if (attention.apart) {
    specs.add(Role::latent_key_up, {heads * attention.latent_rank, attention.plain_dims}, heads);
    specs.add(Role::latent_value_up, {heads * attention.value_dim, attention.latent_rank}, heads);
  } else {
    specs.add(Role::latent_up, {heads * attention.head_rows(), attention.latent_rank});
  }
  specs.add(Role::attention_output, {hidden, attention.projected_width()});
  specs.add_if(attention.output_bias, Role::attention_output_bias, {hidden});
}

// A stored convolution has one input channel for each of its outputs, in a dimension of its own.
void add_attention(Specs& specs, const GatedDeltaNet& attention, int64_t hidden) {
  const int64_t channels = attention.mixed_width();
  specs.add(Role::delta_input, {attention.projection_rows(), hidden});
  specs.add(Role::delta_rates, {attention.rate_rows(), hidden});
  specs.add(Role::delta_convolution, {channels, attention.taps}, channels);
  specs.add(Role::delta_log_decay, {attention.value_heads});
  specs.add(Role::delta_step_bias, {attention.value_heads});
  specs.add(Role::delta_norm, {attention.value_dim});
  specs.add(Role::delta_output, {hidden, attention.projected_width()});
}

}  // namespace

std::vector<TensorSpec> model_tensors(const ModelDescription& model) {
  Specs specs(model, LayerId(model.encoder_layers()), ExpertId(0));  // the decoder's final norm
  specs.add(Role::embedding, {model.vocabulary, model.hidden});
  specs.add_norm(Role::final_norm, Role::final_norm_bias);
  specs.add_if(!model.tied_embeddings, Role::output, {model.vocabulary, model.hidden});
  specs.add_if(model.output_bias, Role::output_bias, {model.vocabulary});
  return specs.take();
}

std::vector<TensorSpec> attention_tensors(const ModelDescription& model, LayerId layer) {
  Specs specs(model, layer, ExpertId(0));
  specs.add_norm(Role::attention_norm, Role::attention_norm_bias);
  if (model.layer(layer).feed_forward.beside_attention) {
    specs.add_norm(Role::feed_forward_norm, Role::feed_forward_norm_bias);
  }
  std::visit([&](const auto& kind) { add_attention(specs, kind, model.hidden); },
             model.layer(layer).attention.kind);
  return specs.take();
}

std::vector<TensorSpec> gate_tensors(const ModelDescription& model, LayerId layer) {
  const FeedForward& part = model.layer(layer).feed_forward;
  const int64_t hidden = model.hidden;
  Specs specs(model, layer, ExpertId(0));
  if (!part.beside_attention) {
    specs.add_norm(Role::feed_forward_norm, Role::feed_forward_norm_bias);
  }
  specs.add_if(part.routed, Role::router, {part.experts, hidden});
  specs.add_if(part.router_bias, Role::router_bias, {part.experts});
  specs.add_if(part.selection_bias, Role::selection_bias, {part.experts});
  if (part.shared) {
    specs.add_if(part.shared->own_norm, Role::shared_norm, {hidden});
    specs.add(Role::shared_gate, {part.shared->width, hidden});
    specs.add(Role::shared_up, {part.shared->width, hidden});
    specs.add(Role::shared_down, {hidden, part.shared->width});
    specs.add_if(part.shared->gated, Role::shared_scale, {1, hidden});
  }
  return specs.take();
}

std::vector<TensorSpec> expert_tensors(const ModelDescription& model, LayerId layer,
                                       ExpertId expert) {
  const FeedForward& part = model.layer(layer).feed_forward;
  Specs specs(model, layer, expert);
  const Shape in = {part.width, model.hidden};
  const Shape out = {model.hidden, part.width};
  const Shape wide = {part.width};
  const Shape narrow = {model.hidden};
  if (part.routed && part.gated) {
    specs.add_expert_pair(Role::expert_gate, Role::expert_up, in);
    specs.add_expert(Role::expert_down, out);
    if (!part.expert_bias) return specs.take();
    specs.add_expert_pair(Role::expert_gate_bias, Role::expert_up_bias, wide);
    specs.add_expert(Role::expert_down_bias, narrow);
  } else if (part.routed) {
    specs.add_expert(Role::expert_gate, in);
    specs.add_expert(Role::expert_down, out);
    if (!part.expert_bias) return specs.take();
    specs.add_expert(Role::expert_gate_bias, wide);
    specs.add_expert(Role::expert_down_bias, narrow);
  } else {
    specs.add(Role::dense_gate, in);
    specs.add_if(part.gated, Role::dense_up, in);
    specs.add(Role::dense_down, out);
    specs.add_if(part.expert_bias, Role::dense_gate_bias, wide);
    specs.add_if(part.expert_bias && part.gated, Role::dense_up_bias, wide);
    specs.add_if(part.expert_bias, Role::dense_down_bias, narrow);
  }
  return specs.take();
}

}  // namespace klotski
