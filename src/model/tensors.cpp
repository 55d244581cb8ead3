#include "model/tensors.h"

#include "base/error.h"

namespace klotski {

namespace {

std::string replaced(std::string text, std::string_view mark, int32_t number) {
  const size_t at = text.find(mark);
  return at == std::string::npos ? text : text.replace(at, mark.size(), std::to_string(number));
}

// Collects the specs of one place of the model.
class Specs {
 public:
  Specs(const ModelDescription& model, LayerId layer, ExpertId expert)
      : model_(model), layer_(layer), expert_(expert) {}

  void add(Role role, Shape shape) { specs_.push_back({role, name_of(role), std::move(shape)}); }
  void add_if(bool condition, Role role, Shape shape) {
    if (condition) add(role, std::move(shape));
  }
  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  std::string name_of(Role role) const {
    for (const TensorPattern& entry : model_.tensor_names) {
      if (entry.role != role) continue;
      return replaced(replaced(std::string(entry.pattern), "{layer}", layer_.value), "{expert}",
                      expert_.value);
    }
    fail(ErrorKind::internal, "the family {} names no tensor for role {}", model_.family,
         static_cast<int>(role));
  }

  const ModelDescription& model_;
  LayerId layer_;
  ExpertId expert_;
  std::vector<TensorSpec> specs_;
};

void add_attention(Specs& specs, const GroupedHeads& attention, int64_t hidden) {
  const int64_t queries = attention.query_width();
  const int64_t keys = attention.key_width();
  const int64_t values = attention.value_width();
  specs.add(Role::query, {queries, hidden});
  specs.add_if(attention.qkv_bias, Role::query_bias, {queries});
  specs.add(Role::key, {keys, hidden});
  specs.add_if(attention.qkv_bias, Role::key_bias, {keys});
  specs.add(Role::value, {values, hidden});
  specs.add_if(attention.qkv_bias, Role::value_bias, {values});
  const bool normed = attention.norm != HeadNorm::none;
  const bool per_head = attention.norm == HeadNorm::per_head;
  specs.add_if(normed, Role::query_norm, {per_head ? attention.head_dim : queries});
  specs.add_if(normed, Role::key_norm, {per_head ? attention.head_dim : keys});
  specs.add_if(attention.sinks, Role::sinks, {attention.query_heads});
  specs.add(Role::attention_output, {hidden, attention.output_width()});
  specs.add_if(attention.output_bias, Role::attention_output_bias, {hidden});
}

}  // namespace

std::vector<TensorSpec> model_tensors(const ModelDescription& model) {
  Specs specs(model, LayerId(0), ExpertId(0));
  specs.add(Role::embedding, {model.vocabulary, model.hidden});
  specs.add(Role::final_norm, {model.hidden});
  specs.add_if(!model.tied_embeddings, Role::output, {model.vocabulary, model.hidden});
  return specs.take();
}

std::vector<TensorSpec> attention_tensors(const ModelDescription& model, LayerId layer) {
  Specs specs(model, layer, ExpertId(0));
  specs.add(Role::attention_norm, {model.hidden});
  std::visit([&](const auto& kind) { add_attention(specs, kind, model.hidden); },
             model.layer(layer).attention.kind);
  return specs.take();
}

std::vector<TensorSpec> gate_tensors(const ModelDescription& model, LayerId layer) {
  const FeedForward& part = model.layer(layer).feed_forward;
  const int64_t hidden = model.hidden;
  Specs specs(model, layer, ExpertId(0));
  specs.add(Role::feed_forward_norm, {hidden});
  specs.add_if(part.routed, Role::router, {part.experts, hidden});
  specs.add_if(part.selection_bias, Role::selection_bias, {part.experts});
  if (part.shared) {
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
  specs.add(part.routed ? Role::expert_gate : Role::dense_gate, {part.width, model.hidden});
  specs.add(part.routed ? Role::expert_up : Role::dense_up, {part.width, model.hidden});
  specs.add(part.routed ? Role::expert_down : Role::dense_down, {model.hidden, part.width});
  return specs.take();
}

}  // namespace klotski
