// The JSON form of a correlation table, described in correlation_table.h.

#include <algorithm>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_file.h"
#include "experts/correlation_table.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxFileBytes = 64 * kMiB;  // a table of 48 layers of 128 experts takes 5 MiB
constexpr int64_t kMaxCount = 2 * kTokensPerHalving;

std::string joined(std::span<const uint32_t> numbers) {
  return fmt::format("[{}]", fmt::join(numbers.begin(), numbers.end(), ","));
}

void read_counts(const JsonFields& fields, const char* key, std::span<uint32_t> counts) {
  const auto numbers = fields.integers(key, 0, kMaxCount);
  if (!numbers || numbers->size() != counts.size()) {
    fields.refuse(key, fmt::format("an array of {} counts", counts.size()));
  }
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<uint32_t>((*numbers)[i]);
}

}  // namespace

class CorrelationTableFile {
 public:
  using Layer = CorrelationTable::Layer;

  static std::string text_of(const CorrelationTable& table) {
    std::string text =
        fmt::format(R"({{"version":1,"model":{},"path_length":{},"layers":[)",
                    Json(table.shape_.model).dump(-1, ' ', false, Json::error_handler_t::replace),
                    table.path_length_);
    for (size_t i = 0; i < table.layers_.size(); ++i) {
      if (i > 0) text += ',';
      append_layer(table.layers_[i], text);
    }
    return text + "\n]}\n";
  }

  static CorrelationTable parse(const std::string& text, const std::string& what,
                                const RoutingTraceShape& shape) {
    const Json document = parse_json(text, what);
    const JsonFields fields(document, what);
    fields.integer("version", 1, 1);
    fields.string("model");
    CorrelationTable table(shape,
                           static_cast<int>(fields.integer("path_length", 1, kMaxPathLength)));
    const Json* layers = fields.find("layers");
    if (!layers || !layers->is_array() || layers->size() != table.layers_.size()) {
      fields.refuse("layers",
                    fmt::format("the {} routed layers of this model", table.layers_.size()));
    }
    for (size_t i = 0; i < table.layers_.size(); ++i) {
      read_layer(JsonFields((*layers)[i], what, fmt::format("layers[{}]", i)), what,
                 table.layers_[i]);
    }
    return table;
  }

 private:
  static void append_layer(const Layer& layer, std::string& text) {
    const RoutedLayer& routed = layer.paths.layer();
    text += fmt::format(
        "\n{{\"layer\":{},\"experts\":{},\"top_k\":{},\"tokens\":{},\"popularity\":{},\"paths\":[",
        routed.layer.value, routed.experts, routed.top_k, layer.tokens, joined(layer.popularity));
    const char* separator = "";
    for (const uint64_t number : layer.paths.known_paths()) {
      const std::span<const uint32_t> counts = layer.paths.counts(number);
      if (std::count(counts.begin(), counts.end(), 0u) == std::ssize(counts)) continue;
      std::vector<uint32_t> path;
      for (const ExpertId expert : layer.paths.path(number)) {
        path.push_back(static_cast<uint32_t>(expert.value));
      }
      text +=
          fmt::format("{}\n{{\"path\":{},\"counts\":{}}}", separator, joined(path), joined(counts));
      separator = ",";
    }
    text += "]}";
  }

  static void read_layer(const JsonFields& fields, const std::string& what, Layer& layer) {
    const RoutedLayer& routed = layer.paths.layer();
    fields.integer("layer", routed.layer.value, routed.layer.value);
    fields.integer("experts", routed.experts, routed.experts);
    fields.integer("top_k", routed.top_k, routed.top_k);
    layer.tokens = fields.integer("tokens", 0, kTokensPerHalving - 1);
    read_counts(fields, "popularity", layer.popularity);
    const Json* paths = fields.find("paths");
    if (!paths || !paths->is_array()) fields.refuse("paths", "an array of objects");
    std::optional<uint64_t> previous;
    for (const Json& element : *paths) {
      const JsonFields path_fields(element, what,
                                   fmt::format("layer {} paths", routed.layer.value));
      const uint64_t number = read_path(path_fields, layer.paths);
      // Paths are written in rising order, which also shows that none comes twice.
      if (previous && number <= *previous) path_fields.refuse("path", "paths in rising order");
      previous = number;
      const std::span<uint32_t> counts = layer.paths.counts_to_change(number);
      if (counts.empty()) fields.refuse("paths", "fewer paths");
      read_counts(path_fields, "counts", counts);
    }
  }

  static uint64_t read_path(const JsonFields& fields, const PathCounts& paths) {
    const auto experts = fields.integers("path", 0, 65534);
    std::vector<ExpertId> path;
    for (const int64_t expert : experts.value_or(std::vector<int64_t>())) {
      path.push_back(ExpertId(expert));
    }
    if (!experts || path.size() != paths.path_length() ||
        paths.path(paths.path_number(path)) != path) {
      fields.refuse("path", fmt::format("{} experts of the layers before", paths.path_length()));
    }
    return paths.path_number(path);
  }
};

void CorrelationTable::save(const std::filesystem::path& path) const {
  const std::string text = CorrelationTableFile::text_of(*this);
  if (text.size() > kMaxFileBytes) {
    fail(ErrorKind::usage,
         "{}: the table takes {}, files of at most {} are kept; use shorter paths",
         path_in_quotes(path), format_bytes(text.size()), format_bytes(kMaxFileBytes));
  }
  NewFile file(path);
  file.write(text);
  file.commit();
}

CorrelationTable CorrelationTable::load(const std::filesystem::path& path,
                                        const RoutingTraceShape& shape) {
  return CorrelationTableFile::parse(read_text_file(path, kMaxFileBytes), path_in_quotes(path),
                                     shape);
}

}  // namespace klotski
