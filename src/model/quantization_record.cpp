#include "model/quantization_record.h"

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"

namespace klotski {

namespace {

constexpr int64_t kRecordVersion = 1;
constexpr uint64_t kMostRecordBytes = 32 * kMiB;  // parsed, JSON takes many times its size
constexpr double kMostError = 1e6;                // of a tensor of which next to nothing is left

// Adds the tensors of a unit that the record has.
void add_unit(LayerErrors& layer, const std::vector<TensorSpec>& specs, const UnitLayout& layout,
              const QuantizationRecord& record) {
  std::set<size_t> counted;  // parts: alternating rows share one
  for (const PlacedTensor& tensor : layout.tensors) {
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const TensorSpec& one) { return one.role == tensor.role; });
    const auto error = record.errors.find(spec->name);
    if (error == record.errors.end() || tensor.shape.size() != 2) continue;
    layer.roles[tensor.role].add(error->second);
    layer.weights += tensor.shape[0] * tensor.shape[1];
    if (counted.insert(tensor.part).second) layer.bytes += layout.bytes_of(tensor);
  }
}

}  // namespace

std::string QuantizationRecord::as_text() const {
  const Json text = {{"version", kRecordVersion}, {"relative_errors", errors}};
  return text.dump(1) + "\n";
}

QuantizationRecord read_quantization_record(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder) || !has_entry(folder, kQuantizationFile)) return {};
  return parse_quantization_record(read_in_folder(folder, kQuantizationFile, kMostRecordBytes),
                                   path_in_quotes(folder / kQuantizationFile));
}

QuantizationRecord parse_quantization_record(std::string_view json_text, const std::string& what) {
  QuantizationRecord record;
  const Json text = parse_json(json_text, what);
  const JsonFields fields(text, what);
  fields.integer("version", kRecordVersion, kRecordVersion);
  if (!fields.object("relative_errors")) fields.refuse("relative_errors", "an object");
  for (const auto& [name, value] : text["relative_errors"].items()) {
    const double error = value.is_number() ? value.get<double>() : -1.0;
    if (!(error >= 0.0 && error <= kMostError)) {
      fail(ErrorKind::bad_model, "{}: relative error of {}: expected a number from 0 to {}", what,
           in_quotes(name), kMostError);
    }
    record.errors[name] = error;
  }
  return record;
}

void ErrorSummary::add(double error) {
  ++tensors;
  sum += error;
  worst = std::max(worst, error);
}

std::vector<LayerErrors> errors_by_layer(const ModelDescription& model, const UnitLayouts& layouts,
                                         const QuantizationRecord& record) {
  std::vector<LayerErrors> layers;
  for (int64_t i = 0; i < model.layer_count() && !record.errors.empty(); ++i) {
    layers.push_back({.layer = LayerId(i), .roles = {}});
  }
  for (const auto& [unit, layout] : layouts.all()) {
    if (unit.kind == UnitKind::model || layers.empty()) continue;
    add_unit(layers[static_cast<size_t>(unit.layer.value)], unit_tensors(model, unit), layout,
             record);
  }
  std::erase_if(layers, [](const LayerErrors& layer) { return layer.roles.empty(); });
  return layers;
}

}  // namespace klotski
