#include "model/quantization.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tensor/checkpoint_formats.h"

namespace klotski {

namespace {

constexpr int64_t kMostGroupColumns = 1 << 20;

void require_value(const JsonFields& fields, std::string_view key, std::string_view wanted,
                   std::string_view fallback) {
  if (fields.string_or(key, fallback) != wanted) fields.refuse(key, wanted);
}

void require_four_bits(const JsonFields& fields, std::string_view key) {
  if (fields.integer(key, 1, 64) != 4) fields.refuse(key, "4, all that this program reads");
}

std::vector<DType> grouped_types(const JsonFields& fields, CheckpointMethod method) {
  const int64_t stated = fields.integer_or("group_size", 128, -1, kMostGroupColumns);
  const std::vector<DType> types = checkpoint_types(method, stated == -1 ? kWholeRow : stated);
  if (types.empty()) fields.refuse("group_size", "32, 64, 128 or -1 (one scale a row)");
  return types;
}

std::vector<DType> fp8_types(const JsonFields& fields) {
  require_value(fields, "fmt", "e4m3", "e4m3");
  const auto block = fields.integers("weight_block_size", 1, kMostGroupColumns);
  if (!block || *block != std::vector<int64_t>{kFp8Block, kFp8Block}) {
    fields.refuse("weight_block_size", "[128, 128], the rows and columns that share a scale");
  }
  return checkpoint_types(CheckpointMethod::fp8, kFp8Block);
}

std::vector<DType> gptq_types(const JsonFields& fields) {
  require_four_bits(fields, "bits");
  if (fields.boolean_or("desc_act", false)) {
    fields.refuse("desc_act",
                  "false (no act-order: columns in groups in their own order); use a checkpoint "
                  "that was quantised so");
  }
  if (fields.boolean_or("is_marlin_format", false)) fields.refuse("is_marlin_format", "false");
  require_value(fields, "pack_dtype", "int32", "int32");
  const std::string format = fields.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    fields.refuse("checkpoint_format", "gptq or gptq_v2");
  }
  return grouped_types(fields,
                       format == "gptq" ? CheckpointMethod::gptq : CheckpointMethod::gptq_v2);
}

std::vector<DType> awq_types(const JsonFields& fields) {
  require_four_bits(fields, "bits");
  const std::string version = fields.string_or("version", "gemm");
  if (version != "gemm" && version != "GEMM") fields.refuse("version", "gemm");
  if (!fields.boolean_or("zero_point", true)) fields.refuse("zero_point", "true");
  return grouped_types(fields, CheckpointMethod::awq);
}

// The types of one entry of compressed-tensors' config_groups.
std::vector<DType> compressed_types(const JsonFields& group) {
  require_value(group, "format", "pack-quantized", "pack-quantized");
  const auto weights = group.object("weights");
  if (!weights) group.refuse("weights", "an object that describes quantised weights");
  require_four_bits(*weights, "num_bits");
  require_value(*weights, "type", "int", "int");
  const Json* order = weights->find("actorder");
  if (order && *order != false && *order != "weight" && *order != "static") {
    weights->refuse("actorder",
                    "null, weight or static (columns in groups in their own order); use a "
                    "checkpoint that was quantised so");
  }
  const CheckpointMethod method = weights->boolean_or("symmetric", true)
                                      ? CheckpointMethod::int4
                                      : CheckpointMethod::int4_zero_points;
  const std::string strategy = weights->string("strategy");
  if (strategy == "channel") return checkpoint_types(method, kWholeRow);
  if (strategy != "group") weights->refuse("strategy", "group or channel");
  return grouped_types(*weights, method);
}

// Whether a name of the file may stand in a message as it is.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

std::vector<DType> all_compressed_types(const JsonFields& fields) {
  require_value(fields, "format", "pack-quantized", "");
  if (const auto sparsity = fields.object("sparsity_config")) {
    require_value(*sparsity, "format", "dense", "dense");
  }
  const auto groups = fields.object("config_groups");
  if (!groups) fields.refuse("config_groups", "an object of at least one group");
  std::vector<DType> types;
  for (const auto& [name, value] : fields.find("config_groups")->items()) {
    if (!is_plain_name(name)) fields.refuse("config_groups", "groups named by letters and digits");
    const auto group = groups->object(name);
    if (!group) continue;  // null counts as absent
    for (const DType type : compressed_types(*group)) {
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
  }
  if (types.empty()) fields.refuse("config_groups", "an object of at least one group");
  return types;
}

std::vector<DType> mxfp4_types(const JsonFields&) {
  return checkpoint_types(CheckpointMethod::mxfp4, kMxBlock);
}

struct Method {
  std::string_view name;  // value of quant_method
  std::vector<DType> (*types)(const JsonFields& fields);
};
constexpr std::array<Method, 5> kMethods = {{{"fp8", fp8_types},
                                             {"gptq", gptq_types},
                                             {"awq", awq_types},
                                             {"compressed-tensors", all_compressed_types},
                                             {"mxfp4", mxfp4_types}}};

[[noreturn]] void refuse_order(const TensorSource& source, const TensorEntry& entry,
                               std::string_view found) {
  fail(ErrorKind::bad_model,
       "{}: tensor {}: expected columns in groups in their own order, found {}; use a checkpoint "
       "that was quantised without act-order",
       path_in_quotes(source.folder()), in_quotes(entry.name), found);
}

// Checks a list of the group of each column.
void check_groups(const TensorSource& source, const TensorEntry& entry, int64_t group) {
  if (entry.dtype != DType::I32 || entry.shape.size() != 1 || entry.shape[0] > kMostGroupColumns) {
    refuse_order(source, entry,
                 fmt::format("{} of shape {}", dtype_name(entry.dtype), format_shape(entry.shape)));
  }
  std::vector<int32_t> groups(static_cast<size_t>(entry.shape[0]));
  source.read(entry, std::as_writable_bytes(std::span(groups)));
  for (size_t column = 0; column < groups.size(); ++column) {
    if (groups[column] == static_cast<int64_t>(column) / group) continue;
    refuse_order(source, entry, fmt::format("column {} in group {}", column, groups[column]));
  }
}

}  // namespace

std::vector<DType> stated_formats(const JsonFields& config) {
  const auto fields = config.object("quantization_config");
  if (!fields) return {};
  const std::string name = fields->string("quant_method");
  std::string known;
  for (const Method& method : kMethods) {
    if (method.name == name) return method.types(*fields);
    known += (known.empty() ? "" : ", ") + std::string(method.name);
  }
  fields->refuse("quant_method", "one of " + known + "; use a checkpoint of one of these");
}

void check_column_order(const TensorSource& source, std::span<const DType> stated) {
  if (stated.empty()) return;
  const int64_t group = checkpoint_format(stated.front())->group;
  for (const TensorEntry& entry : source.tensors()) {
    if (entry.name.ends_with(".weight_g_idx")) refuse_order(source, entry, "a list of groups");
    if (entry.name.ends_with(".g_idx") && source.shard_count() > 0) {
      check_groups(source, entry, group);
    }
  }
}

}  // namespace klotski
