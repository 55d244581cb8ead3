#pragma once

// Errors of the tensors that `klotski quantize` quantised, in a JSON file beside the weights.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/unit_layout.h"

namespace klotski {

inline constexpr std::string_view kQuantizationFile = "klotski-quantization.json";

// Relative errors of quantised tensors, by the name that the tensor has when it is not quantised:
// the Frobenius norm of the differences divided by that of the tensor.
struct QuantizationRecord {
  std::map<std::string, double, std::less<>> errors;

  std::string as_text() const;
};

// The record of a model's folder; an empty one where it has none. Refuses (bad_model) a file that
// is no such record.
QuantizationRecord read_quantization_record(const std::filesystem::path& folder);
// The record that the text of such a file holds; errors name the file as `what`.
QuantizationRecord parse_quantization_record(std::string_view json_text, const std::string& what);

// Errors of some tensors.
struct ErrorSummary {
  int64_t tensors = 0;
  double sum = 0.0;
  double worst = 0.0;

  void add(double error);
  double mean() const { return tensors == 0 ? 0.0 : sum / static_cast<double>(tensors); }
};

// The quantised tensors of a layer: their bytes, their weights, and their errors by role. Roles
// without any are left out.
struct LayerErrors {
  LayerId layer;
  uint64_t bytes = 0;
  int64_t weights = 0;
  std::map<Role, ErrorSummary> roles;
};

// The layers of a model that have tensors of the record.
std::vector<LayerErrors> errors_by_layer(const ModelDescription& model, const UnitLayouts& layouts,
                                         const QuantizationRecord& record);

}  // namespace klotski
