#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/quantization_report.h"
#include "model/counts.h"
#include "model/stored_tensors.h"
#include "model/tensors.h"
#include "model/unit_layout.h"
#include "session/model_tokenizer.h"
#include "tensor/format.h"

namespace klotski {

namespace {

struct InfoOptions {
  ModelFlags model;
  bool json = false;
};

struct StoredBytes {
  uint64_t dense = 0;
  uint64_t expert = 0;
  uint64_t one_expert = 0;  // bytes of an expert of the first routed layer
  // Matrices that may be packed, the compact ones (packed without loss) among them, and the bytes
  // of the compact ones.
  int64_t matrices = 0;
  int64_t compact = 0;
  uint64_t compact_bytes = 0;
  uint64_t bytes_as_bf16 = 0;
  Json lossy = Json::object();  // matrices of each lossy format, and their bytes with side tensors
};

void count_compact(StoredBytes& bytes, const UnitLayout& layout) {
  for (const PlacedTensor& tensor : layout.tensors) {
    if (tensor.shape.size() != 2) continue;  // biases
    ++bytes.matrices;
    if (!is_packed(tensor.dtype) || format_of(tensor.dtype).lossy) continue;
    ++bytes.compact;
    bytes.compact_bytes += layout.bytes_of(tensor);
    bytes.bytes_as_bf16 +=
        static_cast<uint64_t>(tensor.shape[0] * bytes_per_row(DType::BF16, tensor.shape[1]));
  }
}

// Adds to the matrices and bytes of lossy formats. Tensors whose rows alternate share a part, which
// counts once.
void count_lossy(Json& lossy, const UnitLayout& layout) {
  std::vector<bool> counted(layout.parts.size());
  for (const PlacedTensor& tensor : layout.tensors) {
    if (!format_of(tensor.dtype).lossy) continue;
    Json& format = lossy[std::string(dtype_name(tensor.dtype))];
    if (format.is_null()) format = {{"matrices", 0}, {"bytes", 0}};
    format["matrices"] = format["matrices"].get<uint64_t>() + 1;
    std::vector<size_t> parts = tensor.sides;
    parts.push_back(tensor.part);
    for (const size_t part : parts) {
      if (!counted[part]) {
        format["bytes"] = format["bytes"].get<uint64_t>() + layout.parts[part].bytes;
      }
      counted[part] = true;
    }
  }
}

StoredBytes stored_bytes(const OpenedModel& model, const UnitLayouts& layouts) {
  StoredBytes bytes;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    for (const WeightUnit& unit : units_of(model.description, kind)) {
      const UnitLayout& layout = layouts.of(unit);
      const bool expert = kind == UnitKind::expert;
      (expert ? bytes.expert : bytes.dense) += layout.own_bytes;
      if (expert && bytes.one_expert == 0) bytes.one_expert = layout.own_bytes;
      if (may_be_packed(kind)) count_compact(bytes, layout);
      count_lossy(bytes.lossy, layout);
    }
  }
  return bytes;
}

// Tensors and bytes of each type in the files, by the name of the type.
Json stored_types(const TensorSource& source) {
  Json types = Json::object();
  for (const TensorEntry& entry : source.tensors()) {
    Json& type = types[std::string(dtype_name(entry.dtype))];
    if (type.is_null()) type = {{"tensors", 0}, {"bytes", 0}};
    type["tensors"] = type["tensors"].get<uint64_t>() + 1;
    type["bytes"] = type["bytes"].get<uint64_t>() + entry.bytes;
  }
  return types;
}

Json tokenizer_info(const std::filesystem::path& folder) {
  try {
    return load_tokenizer(folder).vocabulary_size();
  } catch (const Error& error) {
    return error.what();
  }
}

// Heads of the first layer that keeps keys, or of the first layer where none does.
HeadCounts heads_of(const ModelDescription& model) {
  for (const Layer& layer : model.layers) {
    if (!layer.attention.cache().parts.empty()) return layer.attention.heads();
  }
  return model.layers.front().attention.heads();
}

Json gather(const OpenedModel& model) {
  const ModelDescription& description = model.description;
  const ParameterCounts parameters = count_parameters(description);
  const UnitLayouts layouts(description, model.checkpoint);  // every tensor is as described
  const StoredBytes bytes = stored_bytes(model, layouts);
  int64_t routed_layers = 0;
  const FeedForward* routed = nullptr;
  for (const Layer& layer : description.layers) {
    if (!layer.feed_forward.routed) continue;
    ++routed_layers;
    routed = &layer.feed_forward;
  }
  const HeadCounts heads = heads_of(description);
  const Json tokenizer = tokenizer_info(model.folder);
  return {
      {"folder", model.folder.native()},
      {"architecture", description.family},
      {"layers", description.layer_count()},
      {"encoder_layers", description.encoder_layers()},
      {"routed_layers", routed_layers},
      {"hidden", description.hidden},
      {"query_heads", heads.query},
      {"kv_heads", heads.kv},
      {"head_dim", heads.key_width},
      {"positions", description.max_positions},
      {"vocabulary", description.vocabulary},
      {"experts", routed ? routed->experts : 0},
      {"experts_per_token", routed ? routed->router.top_k : 0},
      {"expert_width", routed ? routed->width : 0},
      {"shared_expert_width", routed && routed->shared ? routed->shared->width : 0},
      {"parameters",
       {{"total", parameters.total()},
        {"dense", parameters.dense},
        {"expert", parameters.expert},
        {"active", parameters.active}}},
      {"bytes",
       {{"total", bytes.dense + bytes.expert},
        {"dense", bytes.dense},
        {"experts", bytes.expert},
        {"one_expert", bytes.one_expert},
        {"kv_per_token_bf16", kv_numbers_per_token(description) * 2},
        {"kv_per_token_f32", kv_numbers_per_token(description) * 4},
        {"state_per_sequence", state_bytes_per_sequence(description)}}},
      {"compact",
       {{"matrices", bytes.compact},
        {"of", bytes.matrices},
        {"bytes", bytes.compact_bytes},
        {"bytes_as_bf16", bytes.bytes_as_bf16}}},
      {"quantised", quantization_info(model, layouts)},
      {"weight_type",
       dtype_name(model.checkpoint.require(model_tensors(description)[0].name).dtype)},
      {"types", stored_types(model.checkpoint)},
      {"lossy", bytes.lossy},
      {"files", model.checkpoint.shard_count()},
      {"tokenizer", tokenizer.is_number()},
      {"tokenizer_tokens", tokenizer.is_number() ? tokenizer : Json(nullptr)},
      {"tokenizer_error", tokenizer.is_string() ? tokenizer : Json(nullptr)},
      {"chat_template", load_tokenizer_config(model.folder).chat_template.has_value()},
  };
}

std::string count(const Json& number) {
  const auto value = number.get<double>();
  return value >= 1e9   ? fmt::format("{:.2f} G", value / 1e9)
         : value >= 1e6 ? fmt::format("{:.2f} M", value / 1e6)
                        : fmt::format("{:.0f}", value);
}

std::string as_text(const Json& info) {
  const auto number = [&](const char* key) { return info[key].get<int64_t>(); };
  const auto size = [&](const char* key) {
    return format_bytes(info["bytes"][key].get<uint64_t>());
  };
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<14}{}\n", label, value);
  };
  line("model", info["folder"].get<std::string>());
  line("architecture", fmt::format("{}, weights {}", info["architecture"].get<std::string>(),
                                   info["weight_type"].get<std::string>()));
  const std::string encoder = number("encoder_layers") == 0
                                  ? ""
                                  : fmt::format(", {} of the encoder", number("encoder_layers"));
  line("layers", fmt::format("{} ({} routed{}), hidden {}", number("layers"),
                             number("routed_layers"), encoder, number("hidden")));
  line("attention",
       fmt::format("{} query heads, {} key-value heads of {}; {} positions", number("query_heads"),
                   number("kv_heads"), number("head_dim"), number("positions")));
  line("experts",
       fmt::format("{} a layer, {} a token, width {}{}", number("experts"),
                   number("experts_per_token"), number("expert_width"),
                   number("shared_expert_width") > 0
                       ? fmt::format(", shared expert of {}", number("shared_expert_width"))
                       : ""));
  const Json& parameters = info["parameters"];
  line("parameters", fmt::format("{} (dense {}, experts {}); {} active a token",
                                 count(parameters["total"]), count(parameters["dense"]),
                                 count(parameters["expert"]), count(parameters["active"])));
  line("bytes", fmt::format("{} in {} files: dense {}, experts {}, one expert {}", size("total"),
                            number("files"), size("dense"), size("experts"), size("one_expert")));
  std::string types;
  for (const auto& [name, type] : info["types"].items()) {
    types +=
        fmt::format("{}{} {} in {} tensors", types.empty() ? "" : ", ", name,
                    format_bytes(type["bytes"].get<uint64_t>()), type["tensors"].get<uint64_t>());
  }
  line("types", types);
  std::string lossy;
  for (const auto& [name, format] : info["lossy"].items()) {
    lossy += fmt::format("{}{} {} in {} matrices", lossy.empty() ? "" : ", ", name,
                         format_bytes(format["bytes"].get<uint64_t>()),
                         format["matrices"].get<uint64_t>());
  }
  if (!lossy.empty()) line("lossy", lossy);
  const Json& compact = info["compact"];
  if (compact["matrices"] > 0) {
    line("compact", fmt::format("{} of {} matrices of experts and dense parts: {}, {} as BF16",
                                compact["matrices"].get<int64_t>(), compact["of"].get<int64_t>(),
                                format_bytes(compact["bytes"].get<uint64_t>()),
                                format_bytes(compact["bytes_as_bf16"].get<uint64_t>())));
  }
  if (!info["quantised"].is_null()) text += quantization_text(info["quantised"]);
  line("KV cache", fmt::format("{} a token in bf16, {} in f32", size("kv_per_token_bf16"),
                               size("kv_per_token_f32")));
  if (info["bytes"]["state_per_sequence"] > 0) {
    line("states", fmt::format("{} a sequence, whatever its length", size("state_per_sequence")));
  }
  line("tokenizer", info["tokenizer"].get<bool>()
                        ? fmt::format("{} tokens", number("tokenizer_tokens"))
                        : "none: " + info["tokenizer_error"].get<std::string>());
  line("chat template", info["chat_template"].get<bool>() ? "yes" : "no");
  return text;
}

int info_command(const InfoOptions& options) {
  const Json info = gather(*open_model(options.model));
  write_out(options.json ? info.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                         : as_text(info));
  return 0;
}

}  // namespace

void add_info_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* command =
      app.add_subcommand("info", "Describe a model: architecture, experts, parameters, bytes");
  add_model_flags(*command, options->model);
  command->add_flag("--json", options->json, "Print the description as JSON");
  command->callback([options, &action] { action = [options] { return info_command(*options); }; });
}

}  // namespace klotski
