// The JSON form of an activation history, described in activation_collection.h.

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_file.h"
#include "experts/activation_collection.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxHistoryFileBytes = 64 * kMiB;
constexpr int64_t kMaxActivations = 1 << 24;  // floats hold counts up to here exactly

Json matrices_to_json(const ActivationCollection& collection) {
  Json matrices = Json::array();
  for (int64_t i = 0; i < collection.size(); ++i) {
    Json rows = Json::array();
    for (size_t l = 0; l < collection[i].layers(); ++l) {
      Json row = Json::array();
      for (const float count : collection[i].layer(l)) row.push_back(static_cast<int64_t>(count));
      rows.push_back(std::move(row));
    }
    matrices.push_back(std::move(rows));
  }
  return matrices;
}

void check_same_layers(const JsonFields& fields, const std::string& what,
                       const RoutingTraceShape& shape) {
  const Json* layers = fields.find("layers");
  if (!layers || !layers->is_array() || layers->size() != shape.layers.size()) {
    fields.refuse("layers", fmt::format("the {} routed layers of this model", shape.layers.size()));
  }
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const JsonFields layer((*layers)[i], what, fmt::format("layers[{}]", i));
    const RoutedLayer& wanted = shape.layers[i];
    layer.integer("layer", wanted.layer.value, wanted.layer.value);
    layer.integer("experts", wanted.experts, wanted.experts);
    layer.integer("top_k", wanted.top_k, wanted.top_k);
  }
}

ActivationMatrix matrix_of(const JsonFields& fields, const std::string& name, const Json& rows,
                           const RoutingTraceShape& shape) {
  ActivationMatrix matrix(shape);
  const auto refuse = [&](size_t layer) {
    fields.refuse(name, fmt::format("matrices of {} rows with {} counts of 0 to {} in row {}",
                                    shape.layers.size(), shape.layers[layer].experts,
                                    kMaxActivations, layer));
  };
  if (!rows.is_array() || rows.size() != shape.layers.size()) refuse(0);
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    const std::span<float> counts = matrix.layer(l);
    if (!rows[l].is_array() || rows[l].size() != counts.size()) refuse(l);
    for (size_t e = 0; e < counts.size(); ++e) {
      const Json& count = rows[l][e];
      if (!count.is_number_unsigned() || count.get<uint64_t>() > uint64_t{kMaxActivations}) {
        refuse(l);
      }
      counts[e] = static_cast<float>(count.get<uint64_t>());
    }
  }
  return matrix;
}

void read_matrices(const JsonFields& fields, const std::string& name,
                   ActivationCollection& collection) {
  const Json* matrices = fields.find(name);
  if (!matrices || !matrices->is_array()) fields.refuse(name, "an array of matrices");
  for (const Json& rows : *matrices) {
    collection.add(matrix_of(fields, name, rows, collection.shape()));
  }
}

}  // namespace

std::string ActivationHistory::text() const {
  Json layers = Json::array();
  for (const RoutedLayer& layer : decode.shape().layers) {
    layers.push_back(
        {{"layer", layer.layer.value}, {"experts", layer.experts}, {"top_k", layer.top_k}});
  }
  const Json document = {{"version", 1},
                         {"model", decode.shape().model},
                         {"layers", std::move(layers)},
                         {"prompt", matrices_to_json(prompt)},
                         {"decode", matrices_to_json(decode)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void ActivationHistory::save(const std::filesystem::path& path) const {
  const std::string bytes = text();
  if (bytes.size() > kMaxHistoryFileBytes) {
    fail(ErrorKind::usage,
         "{}: expected an activation history of at most {}, found {}; use a smaller capacity",
         path_in_quotes(path), format_bytes(kMaxHistoryFileBytes), format_bytes(bytes.size()));
  }
  NewFile file(path);
  file.write(bytes);
  file.commit();
}

ActivationHistory ActivationHistory::parse(std::string_view text, const std::string& what,
                                           const RoutingTraceShape& shape, int64_t capacity) {
  const Json document = parse_json(std::string(text), what);
  const JsonFields fields(document, what);
  fields.integer("version", 1, 1);
  fields.string("model");
  check_same_layers(fields, what, shape);
  ActivationHistory history(shape, capacity);
  read_matrices(fields, "prompt", history.prompt);
  read_matrices(fields, "decode", history.decode);
  return history;
}

ActivationHistory ActivationHistory::load(const std::filesystem::path& path,
                                          const RoutingTraceShape& shape, int64_t capacity) {
  return parse(read_text_file(path, kMaxHistoryFileBytes), path_in_quotes(path), shape, capacity);
}

ActivationHistory ActivationHistory::load_if_there(const std::filesystem::path& path,
                                                   const RoutingTraceShape& shape,
                                                   int64_t capacity) {
  const bool there = !path.empty() && std::filesystem::exists(path);
  return there ? load(path, shape, capacity) : ActivationHistory(shape, capacity);
}

}  // namespace klotski
