#include "cli/quantization_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "model/quantization_record.h"

namespace klotski {

namespace {

std::string_view role_label(Role role) {
  switch (role) {
    case Role::query:
      return "query";
    case Role::key:
      return "key";
    case Role::value:
      return "value";
    case Role::attention_output:
      return "output";
    case Role::expert_gate:
    case Role::dense_gate:
      return "gate";
    case Role::expert_up:
    case Role::dense_up:
      return "up";
    case Role::expert_down:
    case Role::dense_down:
      return "down";
    default:
      return "other";
  }
}

Json summary(const ErrorSummary& errors) {
  return {{"matrices", errors.tensors}, {"mean", errors.mean()}, {"worst", errors.worst}};
}

}  // namespace

Json quantization_info(const OpenedModel& model, const UnitLayouts& layouts) {
  const QuantizationRecord record = read_quantization_record(model.folder);
  Json layers = Json::array();
  ErrorSummary all;
  uint64_t bytes = 0;
  int64_t weights = 0;
  for (const LayerErrors& layer : errors_by_layer(model.description, layouts, record)) {
    Json roles = Json::array();
    for (const auto& [role, errors] : layer.roles) {
      Json entry = summary(errors);
      entry["role"] = role_label(role);
      roles.push_back(std::move(entry));
      all.tensors += errors.tensors;
      all.sum += errors.sum;
      all.worst = std::max(all.worst, errors.worst);
    }
    bytes += layer.bytes;
    weights += layer.weights;
    layers.push_back({{"layer", layer.layer.value}, {"bytes", layer.bytes}, {"roles", roles}});
  }
  if (layers.empty()) return nullptr;
  Json info = summary(all);
  info["bytes"] = bytes;
  info["bits_per_weight"] = 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
  info["layers"] = std::move(layers);
  return info;
}

std::string quantization_text(const Json& info) {
  std::string text = fmt::format(
      "{:<14}{} matrices in {}, {:.2f} bits a weight; relative error {:.4f}, at most {:.4f}\n",
      "quantised", info["matrices"].get<int64_t>(), format_bytes(info["bytes"].get<uint64_t>()),
      info["bits_per_weight"].get<double>(), info["mean"].get<double>(),
      info["worst"].get<double>());
  for (const Json& layer : info["layers"]) {
    std::string roles;
    for (const Json& role : layer["roles"]) {
      roles += fmt::format(", {} {:.4f} (at most {:.4f})", role["role"].get<std::string>(),
                           role["mean"].get<double>(), role["worst"].get<double>());
    }
    text += fmt::format("  {:<12}{}{}\n", fmt::format("layer {}", layer["layer"].get<int64_t>()),
                        format_bytes(layer["bytes"].get<uint64_t>()), roles);
  }
  return text;
}

}  // namespace klotski
