#include "cli/topology_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "base/small_file.h"

namespace klotski {

namespace {

bool has(const std::vector<int>& sorted, int id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

bool may_run_on(const Topology& topology, const NumaNode& node) {
  return std::any_of(node.cpus.begin(), node.cpus.end(),
                     [&](int cpu) { return has(topology.cpus, cpu); });
}

bool may_take_memory_of(const Topology& topology, const NumaNode& node) {
  return node.memory_bytes > 0 && has(topology.memory_nodes, node.id);
}

std::string kind_name(uint32_t kind) {
  switch (kind >> 8) {
    case 0x0300:
      return "VGA controller";
    case 0x0302:
      return "3D controller";
    default:
      return "display controller";
  }
}

std::string speed_text(const std::optional<double>& transfers) {
  return transfers ? fmt::format("{:g} GT/s", *transfers) : "unknown speed";
}

std::string width_and_speed(const std::optional<PcieLink>& link) {
  if (!link) return "no PCIe link";
  return fmt::format("PCIe x{} of x{}, {} of {}", link->width, link->most_width,
                     speed_text(link->transfers), speed_text(link->most_transfers));
}

Json link_json(const std::optional<PcieLink>& link) {
  if (!link) return nullptr;
  const auto speed = [](const std::optional<double>& transfers) {
    return transfers ? Json(*transfers * 1e9) : Json(nullptr);
  };
  return {{"width", link->width},
          {"most_width", link->most_width},
          {"transfers_per_second", speed(link->transfers)},
          {"most_transfers_per_second", speed(link->most_transfers)}};
}

}  // namespace

Topology topology_here() {
  return {.nodes = numa_nodes(),
          .cpus = allowed_cpus(),
          .memory_nodes = memory_nodes(),
          .displays = display_devices()};
}

std::string topology_text(const Topology& topology) {
  std::string text;
  const char* label = "NUMA nodes";
  for (const NumaNode& node : topology.nodes) {
    text += fmt::format("{:<14}{}: processors {}, {} of memory\n", std::exchange(label, ""),
                        node.id, node.cpus.empty() ? "none" : format_id_list(node.cpus),
                        format_bytes(node.memory_bytes));
  }
  label = "displays";
  for (const DisplayDevice& device : topology.displays) {
    text += fmt::format("{:<14}{} {} {} {:04x}, {}\n", std::exchange(label, ""), device.address,
                        device.vendor_name(), kind_name(device.kind), device.device,
                        width_and_speed(device.link));
  }
  return text;
}

Json topology_json(const Topology& topology) {
  Json nodes = Json::array();
  for (const NumaNode& node : topology.nodes) {
    nodes.push_back({{"id", node.id},
                     {"cpus", node.cpus},
                     {"memory_bytes", node.memory_bytes},
                     {"may_run", may_run_on(topology, node)},
                     {"may_take_memory", may_take_memory_of(topology, node)}});
  }
  Json displays = Json::array();
  for (const DisplayDevice& device : topology.displays) {
    displays.push_back({{"address", device.address},
                        {"class", fmt::format("{:06x}", device.kind)},
                        {"vendor", fmt::format("{:04x}", device.vendor)},
                        {"device", fmt::format("{:04x}", device.device)},
                        {"link", link_json(device.link)}});
  }
  return {{"numa_nodes", std::move(nodes)}, {"display_devices", std::move(displays)}};
}

std::vector<std::string> topology_advice(const Topology& topology) {
  std::vector<std::string> advice;
  for (const DisplayDevice& device : topology.displays) {
    if (!device.link || device.link->width >= device.link->most_width) continue;
    advice.push_back(fmt::format(
        "the PCIe link of {} ({}) has {} of its {} lanes: see to its slot, riser and firmware "
        "settings (its speed falls when idle and says nothing, its width does not)",
        device.address, device.vendor_name(), device.link->width, device.link->most_width));
  }
  std::vector<int> with_cpus, running, with_memory, taking;  // nodes, by id
  for (const NumaNode& node : topology.nodes) {
    if (!node.cpus.empty()) with_cpus.push_back(node.id);
    if (may_run_on(topology, node)) running.push_back(node.id);
    if (node.memory_bytes > 0) with_memory.push_back(node.id);
    if (may_take_memory_of(topology, node)) taking.push_back(node.id);
  }
  if (with_cpus.size() > 1 && running.size() == 1) {
    advice.push_back(fmt::format(
        "of {} NUMA nodes with processors this process may run on node {} alone: allow the others "
        "(taskset, numactl, cpuset) for their threads and their memory's rate",
        with_cpus.size(), running[0]));
  }
  if (!taking.empty() && taking.size() < with_memory.size()) {
    advice.push_back(
        fmt::format("of {} NUMA nodes with memory this process may take that of {} alone: allow "
                    "the others (numactl, cpuset) to keep more weights in memory",
                    with_memory.size(), format_id_list(taking)));
  }
  return advice;
}

}  // namespace klotski
