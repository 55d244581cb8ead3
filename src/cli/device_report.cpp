#include "cli/device_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

std::optional<PcieLink> link_of(const DeviceInfo& device,
                                const std::vector<DisplayDevice>& displays) {
  const auto same = std::find_if(
      displays.begin(), displays.end(),
      [&](const DisplayDevice& display) { return display.address == device.pci_address; });
  return same == displays.end() ? std::nullopt : same->link;
}

// Generation of the speed that both ends can run at: the present speed falls while the device is
// idle.
std::optional<int> generation_of(const PcieLink& link) {
  return link.most_transfers ? pcie_generation(*link.most_transfers) : std::nullopt;
}

std::string link_name(const std::optional<PcieLink>& link) {
  if (!link) return "PCIe link unknown";
  const std::optional<int> generation = generation_of(*link);
  return fmt::format("PCIe {} x{}", generation ? std::to_string(*generation) : "of unknown speed",
                     link->width);
}

std::string capability_of(const DeviceInfo& device) {
  return fmt::format("{}.{}", device.major, device.minor);
}

Json device_json(const DeviceInfo& device, const std::optional<PcieLink>& link) {
  const std::optional<int> generation = link ? generation_of(*link) : std::nullopt;
  return {{"index", device.index},
          {"name", device.name},
          {"capability", capability_of(device)},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.total_bytes},
          {"address", device.pci_address},
          {"pcie_generation", generation ? Json(*generation) : Json(nullptr)},
          {"pcie_width", link ? Json(link->width) : Json(nullptr)}};
}

}  // namespace

std::optional<int> pcie_generation(double transfers) {
  constexpr std::array<double, 6> kTransfers{2.5, 5, 8, 16, 32, 64};
  const auto found = std::find(kTransfers.begin(), kTransfers.end(), transfers);
  if (found == kTransfers.end()) return std::nullopt;
  return static_cast<int>(found - kTransfers.begin()) + 1;
}

std::string devices_text(const DeviceList& found, const std::vector<DisplayDevice>& displays) {
  std::string text;
  const char* label = "devices";
  for (const DeviceInfo& device : found.devices) {
    text += fmt::format("{:<14}{}: {}, capability {}, {} of memory, {}\n", std::exchange(label, ""),
                        device.index, one_line(device.name), capability_of(device),
                        format_bytes(device.total_bytes), link_name(link_of(device, displays)));
  }
  if (found.devices.empty()) {
    text += fmt::format("{:<14}none: {}\n", std::exchange(label, ""), one_line(found.why_none));
  }
  if (!found.driver.empty()) text += fmt::format("{:<14}driver for CUDA {}\n", "", found.driver);
  return text;
}

Json devices_json(const DeviceList& found, const std::vector<DisplayDevice>& displays) {
  const auto text = [](const std::string& value) {
    return value.empty() ? Json(nullptr) : Json(value);
  };
  Json devices = Json::array();
  for (const DeviceInfo& device : found.devices) {
    devices.push_back(device_json(device, link_of(device, displays)));
  }
  return {{"found", std::move(devices)},
          {"driver_cuda", text(found.driver)},
          {"why_none", text(found.why_none)}};
}

}  // namespace klotski
