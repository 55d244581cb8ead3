#include "cli/device_report.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace klotski {
namespace {

DeviceList two_devices() {
  return {.devices = {{.index = 0,
                       .name = "NVIDIA H200",
                       .major = 9,
                       .minor = 0,
                       .multiprocessors = 132,
                       .total_bytes = 140 * kGiB,
                       .pci_address = "0000:41:00.0"},
                      {.index = 1,
                       .name = "NVIDIA T4",
                       .major = 7,
                       .minor = 5,
                       .multiprocessors = 40,
                       .total_bytes = 15 * kGiB,
                       .pci_address = "0000:42:00.0"}},
          .driver = "13.0",
          .why_none = ""};
}

// Display devices; the second link, the first accelerator's, runs slower than it could.
std::vector<DisplayDevice> displays() {
  return {{"0000:40:00.0", 0x030200, 0x10DE, 0x2335, PcieLink{1, 1, 2.5, 2.5}},
          {"0000:41:00.0", 0x030200, 0x10DE, 0x2335, PcieLink{16, 16, 2.5, 32.0}}};
}

TEST(DeviceReport, GenerationsOfPciExpress) {
  EXPECT_EQ(pcie_generation(2.5), 1);
  EXPECT_EQ(pcie_generation(5), 2);
  EXPECT_EQ(pcie_generation(8), 3);
  EXPECT_EQ(pcie_generation(16), 4);
  EXPECT_EQ(pcie_generation(32), 5);
  EXPECT_EQ(pcie_generation(64), 6);
  EXPECT_EQ(pcie_generation(7), std::nullopt);
}

TEST(DeviceReport, Text) {
  EXPECT_EQ(devices_text(two_devices(), displays()),
            "devices       0: NVIDIA H200, capability 9.0, 140.00 GiB of memory, PCIe 5 x16\n"
            "              1: NVIDIA T4, capability 7.5, 15.00 GiB of memory, PCIe link unknown\n"
            "              driver for CUDA 13.0\n");
  std::vector<DisplayDevice> unknown = displays();
  unknown[1].link->most_transfers.reset();
  EXPECT_NE(devices_text(two_devices(), unknown).find("PCIe of unknown speed x16"),
            std::string::npos);
}

TEST(DeviceReport, SaysWhyThereAreNone) {
  EXPECT_EQ(devices_text({.devices = {}, .driver = "", .why_none = "no driver"}, {}),
            "devices       none: no driver\n");
  EXPECT_EQ(devices_text({.devices = {}, .driver = "12.4", .why_none = "it is old"}, {}),
            "devices       none: it is old\n"
            "              driver for CUDA 12.4\n");
}

TEST(DeviceReport, Document) {
  const Json json = devices_json(two_devices(), displays());
  EXPECT_EQ(json["found"][0], Json({{"index", 0},
                                    {"name", "NVIDIA H200"},
                                    {"capability", "9.0"},
                                    {"multiprocessors", 132},
                                    {"memory_bytes", 140 * kGiB},
                                    {"address", "0000:41:00.0"},
                                    {"pcie_generation", 5},
                                    {"pcie_width", 16}}));
  EXPECT_TRUE(json["found"][1]["pcie_generation"].is_null());
  EXPECT_TRUE(json["found"][1]["pcie_width"].is_null());
  EXPECT_EQ(json["driver_cuda"], "13.0");
  EXPECT_TRUE(json["why_none"].is_null());
  const Json none = devices_json({.devices = {}, .driver = "", .why_none = "no driver"}, {});
  EXPECT_EQ(none["found"], Json::array());
  EXPECT_TRUE(none["driver_cuda"].is_null());
  EXPECT_EQ(none["why_none"], "no driver");
}

}  // namespace
}  // namespace klotski
