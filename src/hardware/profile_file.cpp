#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hardware/profile.h"

namespace klotski {

namespace {

constexpr int kProfileFormat = 8;  // of the document; another one is not read
constexpr const char* kProfile = "profile";
constexpr double kMost = 1e15;  // of seconds and of bytes a second: more is nonsense

Json to_json(const Curve& curve) {
  return {{"sizes", std::vector<double>(curve.sizes().begin(), curve.sizes().end())},
          {"seconds", std::vector<double>(curve.seconds().begin(), curve.seconds().end())}};
}

Json to_json(const MachineProfile& machine) {
  Json disk = Json::array();
  for (const DiskRate& rate : machine.disk) {
    disk.push_back({{"block_bytes", rate.block_bytes},
                    {"queue_depth", rate.queue_depth},
                    {"bytes_per_second", rate.bytes_per_second}});
  }
  Json json{
      {"kernels", machine.kernels},
      {"threads", machine.threads},
      {"memory_bytes_per_second", machine.memory_bytes_per_second},
      {"device", machine.device},
      {"rows_take_while_copying", machine.rows_take_while_copying},
      {"cpu_takes_while_copying", machine.cpu_takes_while_copying},
      {"copying_takes_while_cpu_computes", machine.copying_takes_while_cpu_computes},
      {"disk", std::move(disk)},
      {"disk_bytes_per_second", machine.disk_bytes_per_second},
      {"disk_bytes_per_second_while_computing", machine.disk_bytes_per_second_while_computing},
      {"computing_takes_while_reading", machine.computing_takes_while_reading},
      {"disk_bytes_per_second_into_new_memory", machine.disk_bytes_per_second_into_new_memory},
      {"computing_takes_while_finding_memory", machine.computing_takes_while_finding_memory}};
  for (const LinkCurve& one : kLinkCurves) json[one.name] = to_json(machine.*one.curve);
  return json;
}

Json to_json(const ModelProfile& model) {
  Json kinds = Json::array();
  for (const LayerProfile& kind : model.kinds) {
    Json object = Json::object();
    for (const LayerCurve& one : kLayerCurves) object[one.name] = to_json(kind.*one.curve);
    kinds.push_back(std::move(object));
  }
  return {{"kinds", std::move(kinds)},
          {"kind_of_layer", model.kind_of_layer},
          {"embed", to_json(model.embed)},
          {"logits", to_json(model.logits)}};
}

JsonFields object_in(const JsonFields& fields, std::string_view key) {
  const std::optional<JsonFields> object = fields.object(key);
  if (!object) fields.refuse(key, "an object");
  return *object;
}

const Json& array_in(const JsonFields& fields, std::string_view key) {
  const Json* array = fields.find(key);
  if (array == nullptr || !array->is_array()) fields.refuse(key, "an array");
  return *array;
}

// A curve's own check refuses what is not one.
Curve curve_in(const JsonFields& fields, std::string_view key, bool may_be_empty = false) {
  const JsonFields object = object_in(fields, key);
  const auto numbers = [&](std::string_view name) {
    std::optional<std::vector<double>> found = object.numbers(name, 0.0, kMost);
    if (!found) object.refuse(name, "an array");
    return std::move(*found);
  };
  std::vector<double> sizes = numbers("sizes");
  std::vector<double> seconds = numbers("seconds");
  if (may_be_empty && sizes.empty() && seconds.empty()) return {};
  return {std::move(sizes), std::move(seconds)};
}

MachineProfile machine_in(const JsonFields& fields) {
  MachineProfile machine;
  machine.kernels = fields.string("kernels");
  machine.threads = static_cast<int>(fields.integer("threads", 1, 1 << 20));
  machine.memory_bytes_per_second = fields.number("memory_bytes_per_second", 1.0, kMost);
  machine.device = fields.string("device");
  if (!machine.device.empty()) {
    for (const LinkCurve& one : kLinkCurves) machine.*one.curve = curve_in(fields, one.name);
  }
  machine.rows_take_while_copying = fields.number("rows_take_while_copying", 1.0, kMost);
  machine.cpu_takes_while_copying = fields.number("cpu_takes_while_copying", 1.0, kMost);
  machine.copying_takes_while_cpu_computes =
      fields.number("copying_takes_while_cpu_computes", 1.0, kMost);
  for (const Json& entry : array_in(fields, "disk")) {
    const JsonFields rate(entry, kProfile, "disk");
    machine.disk.push_back(
        {.block_bytes = static_cast<uint64_t>(rate.integer("block_bytes", 1, int64_t{1} << 40)),
         .queue_depth = static_cast<int>(rate.integer("queue_depth", 1, 1 << 20)),
         .bytes_per_second = rate.number("bytes_per_second", 1.0, kMost)});
  }
  machine.disk_bytes_per_second =
      fields.number("disk_bytes_per_second", machine.disk.empty() ? 0.0 : 1.0, kMost);
  machine.disk_bytes_per_second_while_computing =
      fields.number("disk_bytes_per_second_while_computing", 0.0, kMost);
  machine.computing_takes_while_reading =
      fields.number("computing_takes_while_reading", 1.0, kMost);
  machine.disk_bytes_per_second_into_new_memory =
      fields.number("disk_bytes_per_second_into_new_memory", 0.0, kMost);
  machine.computing_takes_while_finding_memory =
      fields.number("computing_takes_while_finding_memory", 1.0, kMost);
  return machine;
}

ModelProfile model_in(const JsonFields& fields, bool on_device) {
  ModelProfile model;
  for (const Json& entry : array_in(fields, "kinds")) {
    const JsonFields kind(entry, kProfile, "kinds");
    LayerProfile& layer = model.kinds.emplace_back();
    for (const LayerCurve& one : kLayerCurves) {
      if (one.beside_device && !on_device) continue;
      layer.*one.curve = curve_in(kind, one.name, one.beside_device);
    }
  }
  const auto most = static_cast<int64_t>(model.kinds.size()) - 1;
  const auto kinds = fields.integers("kind_of_layer", 0, most);
  if (!kinds) fields.refuse("kind_of_layer", "an array");
  for (const int64_t kind : *kinds) model.kind_of_layer.push_back(static_cast<int>(kind));
  model.embed = curve_in(fields, "embed");
  model.logits = curve_in(fields, "logits");
  return model;
}

}  // namespace

std::string write_profile(const Profile& profile, std::string_view fingerprint) {
  const Json document{{"format", kProfileFormat},
                      {"fingerprint", fingerprint},
                      {"machine", to_json(profile.machine)},
                      {"model", to_json(profile.model)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Profile> read_profile(std::string_view text, std::string_view fingerprint) {
  try {
    const Json document = parse_json(text, kProfile);
    const JsonFields fields(document, kProfile);
    if (fields.integer("format", 0, 1 << 20) != kProfileFormat) return std::nullopt;
    if (fields.string("fingerprint") != fingerprint) return std::nullopt;
    MachineProfile machine = machine_in(object_in(fields, "machine"));
    const bool on_device = !machine.device.empty();
    return Profile{.machine = std::move(machine),
                   .model = model_in(object_in(fields, "model"), on_device)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace klotski
