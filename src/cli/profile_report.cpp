#include "cli/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "model/tensors.h"
#include "probe/random_weights.h"

namespace klotski {

namespace {

constexpr std::array<int, 4> kRows{1, 8, 64, 512};

// One product of rows with weights: its operations and bytes, and its measured time.
struct Products {
  std::string_view name;
  double parameters = 0;
  double bytes = 0;
  const Curve* seconds = nullptr;

  double operations_per_second(int rows) const {
    return 2.0 * rows * parameters / seconds->at(rows);
  }
  double bytes_per_second(int rows) const { return bytes / seconds->at(rows); }
};

// The matrices among the tensors.
Products products_of(std::string_view name, const std::vector<TensorSpec>& specs,
                     const StoredTypes& types, const Curve& seconds) {
  Products products{.name = name, .seconds = &seconds};
  for (const TensorSpec& spec : specs) {
    if (spec.shape.size() != 2) continue;
    const auto rows = static_cast<double>(spec.shape[0]);
    products.parameters += rows * static_cast<double>(spec.shape[1]);
    products.bytes += rows * static_cast<double>(bytes_per_row(
                                 types[static_cast<size_t>(spec.role)], spec.shape[1]));
  }
  return products;
}

struct KindReport {
  int64_t layers = 0;
  std::vector<Products> products;
};

std::vector<KindReport> kinds_of(const OpenedModel& model, const ModelProfile& profile) {
  const StoredTypes types = stored_types(model.description, model.checkpoint);
  std::vector<KindReport> reports;
  for (size_t kind = 0; kind < profile.kinds.size(); ++kind) {
    const std::vector<int>& of_layer = profile.kind_of_layer;
    const auto first = std::find(of_layer.begin(), of_layer.end(), static_cast<int>(kind));
    const LayerId layer(first - of_layer.begin());
    const LayerProfile& times = profile.kinds[kind];
    const auto expert = expert_tensors(model.description, layer, ExpertId(0));
    reports.push_back(
        {.layers = std::count(of_layer.begin(), of_layer.end(), static_cast<int>(kind)),
         .products = {products_of("expert", expert, types, times.expert),
                      products_of("expert arranged", expert, types, times.expert_arranged),
                      products_of("attention", attention_tensors(model.description, layer), types,
                                  times.attention_products)}});
  }
  return reports;
}

std::string rate(double per_second) { return fmt::format("{:.1f} GB/s", per_second * 1e-9); }

std::string disk_text(const MachineProfile& machine) {
  if (machine.disk().rates.empty())
    return fmt::format("{:<14}none: weights are generated\n", "disk");
  std::string text;
  uint64_t block = 0;
  for (const DiskRate& entry : machine.disk().rates) {
    if (entry.block_bytes != block) {
      text += fmt::format("{}{:<14}{:>9} blocks:", block == 0 ? "" : "\n",
                          block == 0 ? "disk GB/s" : "", format_bytes(entry.block_bytes));
      block = entry.block_bytes;
    }
    text += fmt::format("  {:.2f} ({} at once)", entry.bytes_per_second * 1e-9, entry.queue_depth);
  }
  return text + fmt::format("\n{:<14}{} as the engine reads, {} while it computes\n", "",
                            rate(machine.disk().bytes_per_second),
                            rate(machine.disk().bytes_per_second_while_computing));
}

}  // namespace

std::string profile_text(const OpenedModel& model, const Probed& probed) {
  const MachineProfile& machine = probed.profile.machine;
  std::string text =
      fmt::format("{:<14}{}, {}\n", "model", model.folder.native(),
                  probed.cached ? "cached" : fmt::format("measured in {:.1f} s", probed.seconds));
  text += fmt::format("{:<14}{} by {} threads\n", "memory reads",
                      rate(machine.cpu().memory_bytes_per_second), machine.cpu().threads);
  text += disk_text(machine);
  for (const KindReport& kind : kinds_of(model, probed.profile.model)) {
    text += fmt::format("{:<14}{:<17}", fmt::format("{} layers", kind.layers), "rows");
    for (const int rows : kRows) text += fmt::format("{:>22}", rows);
    for (const Products& products : kind.products) {
      text += fmt::format("\n{:<14}{:<17}", "", products.name);
      for (const int rows : kRows) {
        text += fmt::format("{:>22}", fmt::format("{:.0f} GFLOP/s {:>4.1f} GB/s",
                                                  products.operations_per_second(rows) * 1e-9,
                                                  products.bytes_per_second(rows) * 1e-9));
      }
    }
    text += "\n";
  }
  return text;
}

Json profile_json(const OpenedModel& model, const Probed& probed) {
  const MachineProfile& machine = probed.profile.machine;
  Json disk = Json::array();
  for (const DiskRate& entry : machine.disk().rates) {
    disk.push_back({{"block_bytes", entry.block_bytes},
                    {"queue_depth", entry.queue_depth},
                    {"bytes_per_second", entry.bytes_per_second}});
  }
  Json kinds = Json::array();
  for (const KindReport& kind : kinds_of(model, probed.profile.model)) {
    Json products = Json::array();
    for (const Products& product : kind.products) {
      for (const int rows : kRows) {
        products.push_back({{"name", product.name},
                            {"rows", rows},
                            {"operations_per_second", product.operations_per_second(rows)},
                            {"bytes_per_second", product.bytes_per_second(rows)}});
      }
    }
    kinds.push_back({{"layers", kind.layers}, {"products", std::move(products)}});
  }
  return {{"cached", probed.cached},
          {"seconds", probed.seconds},
          {"memory_bytes_per_second", machine.cpu().memory_bytes_per_second},
          {"disk", std::move(disk)},
          {"disk_bytes_per_second", machine.disk().bytes_per_second},
          {"layers", std::move(kinds)}};
}

}  // namespace klotski
