#include "synth/random_model.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/families/shapes.h"
#include "model/stored_tensors.h"
#include "model/units.h"
#include "tensor/compact.h"
#include "tensor/format.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

constexpr size_t kMostTensors = 1'000'000;  // their names alone take some 100 MB

std::string_view config_name(DType dtype) {
  return dtype == DType::F32 ? "float32" : dtype == DType::F16 ? "float16" : "bfloat16";
}

double checked_share(const ModelDescription& model, const std::optional<double>& wanted) {
  double even = 0.0;  // the largest of any layer
  for (const Layer& layer : model.layers) {
    const FeedForward& part = layer.feed_forward;
    if (!part.routed) continue;
    even =
        std::max(even, static_cast<double>(part.router.top_k) / static_cast<double>(part.experts));
  }
  if (!wanted) return std::max(even, 0.5);
  if (*wanted <= even || *wanted >= 1.0) {
    fail(ErrorKind::usage,
         "share {}: expected more than {:.4g}, which is even routing, and less than 1", *wanted,
         even);
  }
  return *wanted;
}

DType format_named(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, DType>, 2> kFormats{
      {{"compact", kCompactType}, {"mxfp4", DType::MXFP4}}};
  for (const auto& [name, dtype] : kFormats) {
    if (name == word) return dtype;
  }
  fail(ErrorKind::usage, "the end of a shape: expected a field, compact or mxfp4, found {}",
       in_quotes(word));
}

DType checked_type(DType wanted, const std::optional<std::string_view>& format) {
  if (!format) return wanted;
  if (!has_bf16_values(wanted)) {
    fail(ErrorKind::usage,
         "a shape with a format at its end: expected BF16 as the type of the weights, found {}; "
         "leave out one of them",
         dtype_name(wanted));
  }
  return format_named(*format);
}

// The type of weights that are not packed in a model of the given type.
DType plain_type(DType dtype) { return is_packed(dtype) ? DType::BF16 : dtype; }

}  // namespace

DType type_of(const TensorSpec& spec, UnitKind kind, DType dtype) {
  const bool packed = is_packed(dtype) && may_be_packed(kind) && spec.shape.size() == 2 &&
                      packing_saves(dtype, spec.shape);
  return packed ? dtype : plain_type(dtype);
}

RandomModel random_model(const SynthOptions& options) {
  std::optional<TokenizerFiles> copied;
  if (options.tokenizer) copied = copied_tokenizer(*options.tokenizer);
  const int64_t least_tokens = copied ? copied->tokens : byte_tokenizer_tokens();
  std::string_view shape = options.shape;
  const DType dtype = checked_type(options.dtype, take_format(&shape));
  OrderedJson config = shape_config(shape, least_tokens);
  const auto vocabulary = config["vocab_size"].get<int64_t>();
  if (vocabulary < least_tokens) {
    fail(ErrorKind::usage, "the vocabulary has {} tokens, fewer than the tokenizer's {}",
         vocabulary, least_tokens);
  }
  TokenizerFiles tokenizer = copied ? std::move(*copied) : byte_tokenizer(vocabulary);
  OrderedJson generation = OrderedJson::object();
  if (tokenizer.begin_token) generation["bos_token_id"] = *tokenizer.begin_token;
  if (tokenizer.end_token) generation["eos_token_id"] = *tokenizer.end_token;
  config.update(generation);
  config["dtype"] = config_name(dtype);

  RandomModel model;
  model.dtype = dtype;
  model.description = parse_config(config.dump(), "config.json");
  model.share = checked_share(model.description, options.share);
  config["klotski_synthetic"] = {{"seed", options.seed}, {"share", model.share}};
  model.files = std::move(tokenizer.files);
  model.files.push_back({"config.json", config.dump(2) + "\n"});
  model.files.push_back({"generation_config.json", generation.dump(2) + "\n"});
  return model;
}

void write_files(const RandomModel& model, const std::filesystem::path& folder) {
  for (const TokenizerFiles::NamedText& file : model.files) {
    write_text_file(folder / file.name, file.content);
  }
}

std::vector<ModelTensor> tensors_in_order(const ModelDescription& model, DType dtype) {
  std::vector<ModelTensor> tensors;
  const auto add = [&](const WeightUnit& unit) {
    for (TensorSpec& spec : unit_tensors(model, unit)) {
      // One tensor has the matrices of all experts: the first slice of it stands for all.
      if (spec.slice && spec.slice->index + spec.slice->first_row > 0) continue;
      if (spec.repeated) continue;
      uint64_t elements = 0;
      if (!element_count(spec.shape, &elements)) {
        fail(ErrorKind::usage, "tensor {} is too large", in_quotes(spec.name));
      }
      if (tensors.size() >= kMostTensors) {
        fail(ErrorKind::usage, "the shape has more than {} tensors", kMostTensors);
      }
      const DType type = type_of(spec, unit.kind, dtype);
      tensors.push_back({std::move(spec), unit.layer, type});
    }
  };
  add(model_unit());
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    add(attention_unit(layer));
    add(gate_unit(layer));
    for (int64_t e = 0; e < model.layer(layer).feed_forward.experts; ++e) {
      add(expert_unit(model, layer, ExpertId(e)));
    }
  }
  return tensors;
}

uint64_t count_weight_bytes(const ModelDescription& model, DType dtype) {
  const auto parameters = count_parameters(model).total();
  const DType plain = plain_type(dtype);
  int64_t saved = 0;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const WeightUnit unit = expert_unit(model, LayerId(i), ExpertId(0));
    for (const TensorSpec& spec : unit_tensors(model, unit)) {
      if (spec.shape.size() != 2) continue;  // biases
      const int64_t columns = spec.shape[1];
      saved +=
          model.layer(unit.layer).feed_forward.experts * spec.shape[0] *
          (bytes_per_row(plain, columns) - bytes_per_row(type_of(spec, unit.kind, dtype), columns));
    }
  }
  return static_cast<uint64_t>(parameters * bytes_per_element(plain) - saved);
}

}  // namespace klotski
