#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hardware/profile.h"

namespace klotski {

namespace {

constexpr int kProfileFormat = 9;  // version of the document; other versions are not read
constexpr const char* kProfile = "profile";
constexpr double kMost = 1e15;  // seconds, or bytes a second: more is nonsense

Json to_json(const Curve& curve) {
  return {{"sizes", std::vector<double>(curve.sizes().begin(), curve.sizes().end())},
          {"seconds", std::vector<double>(curve.seconds().begin(), curve.seconds().end())}};
}

Json to_json(const ProcessorProfile& processor) {
  return {{"tier", tier_name(processor.tier)},
          {"name", processor.name},
          {"threads", processor.threads},
          {"memory_bytes_per_second", processor.memory_bytes_per_second},
          {"takes_while_copying", processor.takes_while_copying},
          {"takes_while_reading", processor.takes_while_reading},
          {"takes_while_finding_memory", processor.takes_while_finding_memory}};
}

Json to_json(const LinkProfile& link) {
  Json json{{"from", tier_name(link.from)},
            {"to", tier_name(link.to)},
            {"rows_take_while_copying", link.rows_take_while_copying},
            {"takes_while_computing", link.takes_while_computing}};
  for (const LinkCurve& one : kLinkCurves) json[one.name] = to_json(link.*one.curve);
  return json;
}

Json to_json(const DiskProfile& disk) {
  Json rates = Json::array();
  for (const DiskRate& rate : disk.rates) {
    rates.push_back({{"block_bytes", rate.block_bytes},
                     {"queue_depth", rate.queue_depth},
                     {"bytes_per_second", rate.bytes_per_second}});
  }
  return {{"tier", tier_name(disk.tier)},
          {"rates", std::move(rates)},
          {"bytes_per_second", disk.bytes_per_second},
          {"bytes_per_second_while_computing", disk.bytes_per_second_while_computing},
          {"bytes_per_second_into_new_memory", disk.bytes_per_second_into_new_memory}};
}

template <typename Entry>
Json list_to_json(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) list.push_back(to_json(entry));
  return list;
}

Json to_json(const MachineProfile& machine) {
  return {{"processors", list_to_json(machine.processors)},
          {"links", list_to_json(machine.links)},
          {"disks", list_to_json(machine.disks)}};
}

Json to_json(const ModelProfile& model) {
  Json kinds = Json::array();
  for (const LayerProfile& kind : model.kinds) {
    Json object = Json::object();
    for (const LayerCurve& one : kLayerCurves) {
      const Curve& curve = kind.*one.curve;
      if (one.in_all_layers || !curve.empty()) object[one.name] = to_json(curve);
    }
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

// Refuses, by the curve's own check, numbers that are no curve.
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

TierId tier_in(const JsonFields& fields, std::string_view key) {
  const std::optional<TierId> tier = tier_named(fields.string(key));
  if (!tier) fields.refuse(key, "a tier");
  return *tier;
}

// The first processor is a CPU, which has threads.
ProcessorProfile processor_in(const JsonFields& fields, bool is_cpu) {
  const int64_t least = is_cpu ? 1 : 0;
  const auto times = [&](std::string_view key) { return fields.number(key, 1.0, kMost); };
  return {.tier = tier_in(fields, "tier"),
          .name = fields.string("name"),
          .threads = static_cast<int>(fields.integer("threads", least, 1 << 20)),
          .memory_bytes_per_second =
              fields.number("memory_bytes_per_second", static_cast<double>(least), kMost),
          .takes_while_copying = times("takes_while_copying"),
          .takes_while_reading = times("takes_while_reading"),
          .takes_while_finding_memory = times("takes_while_finding_memory")};
}

LinkProfile link_in(const JsonFields& fields) {
  LinkProfile link{.from = tier_in(fields, "from"), .to = tier_in(fields, "to")};
  for (const LinkCurve& one : kLinkCurves) link.*one.curve = curve_in(fields, one.name);
  link.rows_take_while_copying = fields.number("rows_take_while_copying", 1.0, kMost);
  link.takes_while_computing = fields.number("takes_while_computing", 1.0, kMost);
  return link;
}

DiskProfile disk_in(const JsonFields& fields) {
  DiskProfile disk{.tier = tier_in(fields, "tier")};
  for (const Json& entry : array_in(fields, "rates")) {
    const JsonFields rate(entry, kProfile, "rates");
    disk.rates.push_back(
        {.block_bytes = static_cast<uint64_t>(rate.integer("block_bytes", 1, int64_t{1} << 40)),
         .queue_depth = static_cast<int>(rate.integer("queue_depth", 1, 1 << 20)),
         .bytes_per_second = rate.number("bytes_per_second", 1.0, kMost)});
  }
  const double least = disk.rates.empty() ? 0.0 : 1.0;
  disk.bytes_per_second = fields.number("bytes_per_second", least, kMost);
  disk.bytes_per_second_while_computing =
      fields.number("bytes_per_second_while_computing", 0.0, kMost);
  disk.bytes_per_second_into_new_memory =
      fields.number("bytes_per_second_into_new_memory", 0.0, kMost);
  return disk;
}

// A machine has a CPU and a disk, and every device a link.
MachineProfile machine_in(const JsonFields& fields) {
  MachineProfile machine{.processors = {}, .links = {}, .disks = {}};
  for (const Json& entry : array_in(fields, "processors")) {
    const JsonFields processor(entry, kProfile, "processors");
    machine.processors.push_back(processor_in(processor, machine.processors.empty()));
  }
  for (const Json& entry : array_in(fields, "links")) {
    machine.links.push_back(link_in(JsonFields(entry, kProfile, "links")));
  }
  for (const Json& entry : array_in(fields, "disks")) {
    machine.disks.push_back(disk_in(JsonFields(entry, kProfile, "disks")));
  }
  if (machine.processors.empty()) fields.refuse("processors", "one at least");
  if (machine.disks.empty()) fields.refuse("disks", "one at least");
  if (machine.links.size() + 1 < machine.processors.size()) fields.refuse("links", "one a device");
  return machine;
}

ModelProfile model_in(const JsonFields& fields, bool on_device) {
  ModelProfile model;
  for (const Json& entry : array_in(fields, "kinds")) {
    const JsonFields kind(entry, kProfile, "kinds");
    LayerProfile& layer = model.kinds.emplace_back();
    for (const LayerCurve& one : kLayerCurves) {
      if (one.beside_device && !on_device) continue;
      if (!one.in_all_layers && !kind.has(one.name)) continue;
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
    const bool on_device = machine.has_device();
    return Profile{.machine = std::move(machine),
                   .model = model_in(object_in(fields, "model"), on_device)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace klotski
