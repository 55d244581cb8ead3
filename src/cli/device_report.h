#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/pci.h"
#include "device/device.h"

namespace klotski {

// 10^9 transfers a second and lane as the generation of PCI Express that has them; none for any
// other number.
std::optional<int> pcie_generation(double transfers);

// Accelerators for `klotski doctor`, each with its link among `displays`, or why there are none.
std::string devices_text(const DeviceList& found, const std::vector<DisplayDevice>& displays);
Json devices_json(const DeviceList& found, const std::vector<DisplayDevice>& displays);

}  // namespace klotski
