#include "model/config.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "model/families/families.h"
#include "model/quantization.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxConfigBytes = 16 * kMiB;

std::string supported_types() {
  std::string list;
  for (const Family& family : families()) {
    list += (list.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return list;
}

// Letters to put in, take out or replace to make one word of another.
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);  // distances of a beginning of `from` to those of `to`
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The known type that is most like `type`.
std::string_view nearest_type(std::string_view type) {
  constexpr size_t kLongest = 64;  // names of types are shorter
  const std::string_view wanted = type.substr(0, kLongest);
  const auto nearer = [&](const Family& a, const Family& b) {
    return edit_distance(wanted, a.model_type) < edit_distance(wanted, b.model_type);
  };
  return std::min_element(families().begin(), families().end(), nearer)->model_type;
}

}  // namespace

ModelDescription parse_config(std::string_view json_text, std::string_view what) {
  const Json json = parse_json(json_text, what);
  const JsonFields config(json, std::string(what));
  const std::string type = config.string("model_type");
  for (const Family& family : families()) {
    if (family.model_type == type) {
      ModelDescription description = family.describe(config);
      description.family = type;
      description.tensor_names.assign(family.tensor_names.begin(), family.tensor_names.end());
      description.tensor_names.insert(description.tensor_names.end(), kDecoderTensors.begin(),
                                      kDecoderTensors.end());
      description.stated_formats = stated_formats(config);
      return description;
    }
  }
  config.refuse("model_type", fmt::format("one of {}, of which {} is nearest", supported_types(),
                                          nearest_type(type)));
}

ModelDescription read_config(const std::filesystem::path& folder) {
  const File file = open_in_folder(folder, "config.json");
  ModelDescription description =
      parse_config(read_text_file(file, kMaxConfigBytes), path_in_quotes(file.path()));
  if (has_entry(folder, "generation_config.json")) {
    const File generation = open_in_folder(folder, "generation_config.json");
    const std::string what = path_in_quotes(generation.path());
    const Json json = parse_json(read_text_file(generation, kMaxConfigBytes), what,
                                 ErrorKind::bad_model, {.wanted = {"eos_token_id"}});
    const std::vector<TokenId> end_tokens =
        token_ids(JsonFields(json, what), "eos_token_id", description.vocabulary);
    if (!end_tokens.empty()) description.end_tokens = end_tokens;
  }
  return description;
}

ModelDescription describe_model(const TensorSource& source) {
  if (is_gguf_file(source.folder())) return read_gguf_description(source);
  ModelDescription description = read_config(source.folder());
  check_column_order(source, description.stated_formats);
  return description;
}

std::string_view repeat_fault(ModelDescription& model, std::string_view transformers_version) {
  for (const Family& family : families()) {
    if (family.model_type != model.family || !family.repeat_fault) continue;
    return family.repeat_fault(model, transformers_version);
  }
  return {};
}

}  // namespace klotski
