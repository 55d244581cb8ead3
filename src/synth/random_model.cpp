#include "synth/random_model.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/config.h"
#include "model/families/shapes.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

constexpr size_t kMostTensors = 1'000'000;  // of a model; their names alone take some 100 MB

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

}  // namespace

RandomModel random_model(const SynthOptions& options) {
  std::optional<TokenizerFiles> copied;
  if (options.tokenizer) copied = copied_tokenizer(*options.tokenizer);
  const int64_t least_tokens = copied ? copied->tokens : byte_tokenizer_tokens();
  OrderedJson config = shape_config(options.shape, least_tokens);
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
  config["dtype"] = config_name(options.dtype);

  RandomModel model;
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

std::vector<ModelTensor> tensors_in_order(const ModelDescription& model) {
  std::vector<ModelTensor> tensors;
  const auto add = [&](std::vector<TensorSpec> specs, LayerId layer) {
    for (TensorSpec& spec : specs) {
      uint64_t elements = 0;
      if (!element_count(spec.shape, &elements)) {
        fail(ErrorKind::usage, "tensor {} is too large", in_quotes(spec.name));
      }
      if (tensors.size() >= kMostTensors) {
        fail(ErrorKind::usage, "the shape has more than {} tensors", kMostTensors);
      }
      tensors.push_back({std::move(spec), layer, elements});
    }
  };
  add(model_tensors(model), LayerId(0));
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    add(attention_tensors(model, layer), layer);
    add(gate_tensors(model, layer), layer);
    for (int64_t e = 0; e < model.layer(layer).feed_forward.experts; ++e) {
      add(expert_tensors(model, layer, ExpertId(e)), layer);
    }
  }
  return tensors;
}

}  // namespace klotski
