#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace klotski {

// Free memory of a device by the driver's management library, which needs no context on it: a
// context takes hundreds of MiB. Nothing where the library or the device is not there.
std::optional<uint64_t> nvml_free_bytes(const std::string& pci_address);

}  // namespace klotski
