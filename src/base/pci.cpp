#include "base/pci.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/numbers.h"
#include "base/small_file.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

// "0x030200", with that many digits.
std::optional<uint32_t> hexadecimal(std::string_view text, size_t digits) {
  uint32_t value = 0;
  if (text.size() != digits + 2 || !text.starts_with("0x")) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 2, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// domain:bus:device.function, "0000:01:00.0"; a domain may have more digits.
bool is_address(std::string_view name) {
  constexpr std::string_view kEnd = ":xx:xx.x";  // x: a hexadecimal digit
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto is_digit = [&](char c) { return kDigits.find(c) != std::string_view::npos; };
  if (name.size() < 4 + kEnd.size() || name.size() > 8 + kEnd.size()) return false;
  const std::string_view domain = name.substr(0, name.size() - kEnd.size());
  return std::all_of(domain.begin(), domain.end(), is_digit) &&
         std::equal(
             kEnd.begin(), kEnd.end(), name.begin() + domain.size(),
             [&](char expected, char c) { return expected == 'x' ? is_digit(c) : c == expected; });
}

// Lanes; 0 and 255 stand for no link.
std::optional<int> width_in(const fs::path& path) {
  constexpr uint64_t kMostLanes = 32;
  const auto lanes = parse_uint(small_file(path));
  if (!lanes || *lanes == 0 || *lanes > kMostLanes) return std::nullopt;
  return static_cast<int>(*lanes);
}

// "16.0 GT/s PCIe", "8 GT/s"; "Unknown".
std::optional<double> transfers_in(const fs::path& path) {
  constexpr double kMost = 1000;
  const std::string text = small_file(path);
  const size_t space = text.find(' ');
  const auto number = parse_double(std::string_view(text).substr(0, space));
  if (!number || *number <= 0 || *number > kMost || space == std::string::npos ||
      !std::string_view(text).substr(space).starts_with(" GT/s")) {
    return std::nullopt;
  }
  return number;
}

std::optional<PcieLink> link_in(const fs::path& folder) {
  const auto width = width_in(folder / "current_link_width");
  const auto most = width_in(folder / "max_link_width");
  if (!width || !most || *width > *most) return std::nullopt;
  return PcieLink{.width = *width,
                  .most_width = *most,
                  .transfers = transfers_in(folder / "current_link_speed"),
                  .most_transfers = transfers_in(folder / "max_link_speed")};
}

}  // namespace

std::string DisplayDevice::vendor_name() const {
  switch (vendor) {
    case 0x10DE:
      return "NVIDIA";
    case 0x1002:
      return "AMD";
    case 0x8086:
      return "Intel";
    default:
      return fmt::format("vendor {:04x}", vendor);
  }
}

std::vector<DisplayDevice> display_devices() { return display_devices("/sys"); }

std::vector<DisplayDevice> display_devices(const fs::path& sys) {
  constexpr uint32_t kDisplay = 0x03;
  std::vector<DisplayDevice> devices;
  std::error_code error;
  for (fs::directory_iterator entry(sys / "bus/pci/devices", error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& folder = entry->path();
    const std::string name = folder.filename().native();
    const auto kind = hexadecimal(small_file(folder / "class"), 6);
    if (!is_address(name) || !kind || *kind >> 16 != kDisplay) continue;
    const auto vendor = hexadecimal(small_file(folder / "vendor"), 4);
    const auto device = hexadecimal(small_file(folder / "device"), 4);
    if (!vendor || !device) continue;
    devices.push_back({.address = name,
                       .kind = *kind,
                       .vendor = static_cast<uint16_t>(*vendor),
                       .device = static_cast<uint16_t>(*device),
                       .link = link_in(folder)});
  }
  std::sort(devices.begin(), devices.end(),
            [](const DisplayDevice& a, const DisplayDevice& b) { return a.address < b.address; });
  return devices;
}

}  // namespace klotski
