#include "model/families/gguf_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/tensors.h"

namespace klotski {

namespace {

// Files have numbers of single precision.
bool nearly_equal(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

// Refuses a number that is none of `allowed`; the first of these is what this program computes.
void check_number(const JsonFields& metadata, const std::string& key,
                  std::initializer_list<double> allowed) {
  if (!metadata.has(key)) return;
  const double found = metadata.number(key, -1e30, 1e30);
  for (const double value : allowed) {
    if (nearly_equal(found, value)) return;
  }
  metadata.refuse(key, fmt::format("{}, all that this program computes for this architecture",
                                   *allowed.begin()));
}

void collect_names(const TensorSource& source, const std::vector<TensorSpec>& specs,
                   std::set<std::string_view>& names) {
  for (const TensorSpec& spec : specs) names.insert(source.require(spec.name).name);
}

// The rule of the routed layers, which have one in common.
RouterRule router_of(const ModelDescription& model) {
  for (const Layer& layer : model.layers) {
    if (layer.feed_forward.routed) return layer.feed_forward.router;
  }
  return {};
}

}  // namespace

void check_gguf_rope_scaling(const GgufModel& files, bool yarn, bool sharpens) {
  const auto check = [&](std::string_view key, std::initializer_list<double> allowed) {
    check_number(files.metadata, files.key("rope.scaling.") + std::string(key), allowed);
  };
  check("attn_factor", {1});
  check("yarn_attn_factor", {1});
  check("yarn_ext_factor", {yarn ? 1.0 : 0.0, -1});  // -1: by the type of scaling
  if (yarn && !sharpens) check("yarn_log_multiplier", {0});
}

void check_gguf_metadata(const GgufModel& files, const ModelDescription& model) {
  const JsonFields& metadata = files.metadata;
  // Numbers of the function that makes weights of router scores; 0: not stated.
  constexpr double kSoftmax = 1;
  constexpr double kSigmoid = 2;
  const std::string rotated = files.key("rope.dimension_count");
  const int64_t whole = model.rope.rotated_dims;
  if (metadata.has(rotated) && metadata.integer(rotated, 0, INT64_MAX) != whole) {
    metadata.refuse(rotated, fmt::format("all {} numbers of a head", whole));
  }
  // A kind of attention without scores has no factor of theirs.
  const double scale = std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.scale; }) return static_cast<double>(kind.scale);
        return 0.0;
      },
      model.layers.front().attention.kind);
  check_number(metadata, files.key("attention.scale"), {scale, 0});
  const RouterRule router = router_of(model);
  check_number(metadata, files.key("expert_weights_scale"), {static_cast<double>(router.scale), 0});
  check_number(metadata, files.key("expert_gating_func"),
               {router.score == ScoreFunction::sigmoid ? kSigmoid : kSoftmax, 0});
  const std::string renormalises = files.key("expert_weights_norm");
  if (metadata.boolean_or(renormalises, router.renormalise) != router.renormalise) {
    metadata.refuse(renormalises, fmt::format("{}, all that this program computes for this "
                                              "architecture",
                                              router.renormalise));
  }
}

// The first tensor that is not there ends the search, so that it takes no more steps than the files
// have tensors, whatever counts of layers and experts the metadata state.
void refuse_unread_tensors(const GgufModel& files, const ModelDescription& model) {
  const TensorSource& source = files.tensors;
  std::set<std::string_view> read;
  if (model.rope.kind == RopeKind::longrope) {
    read.insert({kGgufFactors, kGgufShortFactors, kGgufLongFactors});
  }
  collect_names(source, model_tensors(model), read);
  for (int32_t i = 0; i < static_cast<int32_t>(model.layers.size()); ++i) {
    const LayerId layer(i);
    collect_names(source, attention_tensors(model, layer), read);
    collect_names(source, gate_tensors(model, layer), read);
    const int64_t experts = model.layers[static_cast<size_t>(i)].feed_forward.experts;
    for (int32_t expert = 0; expert < experts; ++expert) {
      const std::vector<TensorSpec> specs = expert_tensors(model, layer, ExpertId(expert));
      collect_names(source, specs, read);
      if (specs.front().slice) break;  // one tensor has the matrices of all experts
    }
  }
  std::vector<std::string> further;  // what their tensors' names begin with
  for (int64_t i = 0; i < files.further_layers(); ++i) {
    further.push_back(fmt::format("blk.{}.", model.layer_count() + i));
  }
  const auto is_further = [&](const std::string& name) {
    return std::any_of(further.begin(), further.end(),
                       [&](const std::string& layer) { return name.starts_with(layer); });
  };
  for (const TensorEntry& entry : source.tensors()) {
    if (read.contains(entry.name) || is_further(entry.name)) continue;
    fail(ErrorKind::bad_model,
         "{}: tensor {}: expected only tensors that a {} model computes with, found this; use a "
         "file without it or the model's safetensors",
         path_in_quotes(source.folder()), in_quotes(entry.name), model.family);
  }
}

}  // namespace klotski
