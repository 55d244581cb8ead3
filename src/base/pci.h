#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace klotski {

// A PCI Express link as it runs and as both ends could run it.
struct PcieLink {
  int width = 0;  // lanes
  int most_width = 0;
  std::optional<double> transfers;  // 10^9 a second and lane; falls while the device is idle
  std::optional<double> most_transfers;

  bool operator==(const PcieLink&) const = default;
};

// A display or 3D controller (PCI class 03), which may be an accelerator.
struct DisplayDevice {
  std::string address;  // "0000:01:00.0"
  uint32_t kind = 0;    // PCI class of six hexadecimal digits: 030000 VGA, 030200 3D
  uint16_t vendor = 0;
  uint16_t device = 0;
  std::optional<PcieLink> link;  // none where it has none, or the system does not say

  std::string vendor_name() const;  // "NVIDIA"; the number of one that is not known
  bool operator==(const DisplayDevice&) const = default;
};

// Devices by address.
std::vector<DisplayDevice> display_devices();
std::vector<DisplayDevice> display_devices(const std::filesystem::path& sys);  // /sys, for tests

}  // namespace klotski
