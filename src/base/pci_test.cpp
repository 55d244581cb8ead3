#include "base/pci.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace klotski {
namespace {

class Pci : public ::testing::Test {
 protected:
  Pci() : root_(::testing::TempDir() + "/pci" + std::to_string(::getpid())) {}
  ~Pci() override { std::filesystem::remove_all(root_); }

  void write(const std::string& device, const std::string& name, const std::string& text) const {
    const std::filesystem::path folder = root_ / "bus/pci/devices" / device;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text << "\n";
  }
  void device(const std::string& address, const std::string& kind = "0x030200") const {
    write(address, "class", kind);
    write(address, "vendor", "0x10de");
    write(address, "device", "0x2335");
  }
  void link(const std::string& address, const std::string& width, const std::string& most) const {
    write(address, "current_link_width", width);
    write(address, "max_link_width", most);
    write(address, "current_link_speed", "2.5 GT/s PCIe");
    write(address, "max_link_speed", "32.0 GT/s PCIe");
  }
  std::vector<DisplayDevice> found() const { return display_devices(root_); }

  std::filesystem::path root_;
};

TEST_F(Pci, ControllersOfDisplaysWithTheirLinks) {
  device("0000:41:00.0");
  link("0000:41:00.0", "8", "16");
  device("0000:01:00.0", "0x030000");
  write("0000:01:00.0", "vendor", "0x1002");
  device("0000:02:00.0", "0x010802");  // a disk
  device("10000:e1:00.0", "0x038000");
  const DisplayDevice plain{"0000:01:00.0", 0x030000, 0x1002, 0x2335, {}};
  const DisplayDevice linked{"0000:41:00.0", 0x030200, 0x10DE, 0x2335, PcieLink{8, 16, 2.5, 32.0}};
  const DisplayDevice behind{"10000:e1:00.0", 0x038000, 0x10DE, 0x2335, {}};
  EXPECT_EQ(found(), (std::vector{plain, linked, behind}));
}

TEST(DisplayDevice, Vendors) {
  const auto name_of = [](uint16_t vendor) {
    DisplayDevice device;
    device.vendor = vendor;
    return device.vendor_name();
  };
  EXPECT_EQ(name_of(0x10DE), "NVIDIA");
  EXPECT_EQ(name_of(0x1002), "AMD");
  EXPECT_EQ(name_of(0x8086), "Intel");
  EXPECT_EQ(name_of(0x1AB), "vendor 01ab");
}

TEST_F(Pci, OddDevicesAreSkipped) {
  for (const char* address : {"0000:01:00", "0000-01-00.0", "x000:01:00.0", "0000:01:00.0x",
                              "01:00.0", "000000000:01:00.0", "0000:01:0g.0", "\x1B[2J:01:00.0"}) {
    device(address);
  }
  for (const char* kind : {"", "030200", "0x0302", "0x03020000", "0x0302zz", "0x 30200", "3"}) {
    device("0000:05:00.0", kind);
    EXPECT_TRUE(found().empty()) << kind;
  }
  device("0000:05:00.0");
  EXPECT_EQ(found().size(), 1u);
  write("0000:05:00.0", "vendor", "NVIDIA");
  EXPECT_TRUE(found().empty());
}

TEST_F(Pci, OddWidthsAreNoLink) {
  device("0000:05:00.0");
  for (const auto& [width, most] : {std::pair{"0", "16"},
                                    {"255", "16"},
                                    {"16", "255"},
                                    {"", ""},
                                    {"x8", "16"},
                                    {"-8", "16"},
                                    {"16", "8"},
                                    {"8.0", "16"}}) {
    link("0000:05:00.0", width, most);
    EXPECT_EQ(found().at(0).link, std::nullopt) << width << " of " << most;
  }
  link("0000:05:00.0", "16", "16");
  EXPECT_EQ(found().at(0).link, (PcieLink{16, 16, 2.5, 32.0}));
}

TEST_F(Pci, OddSpeedsAreUnknown) {
  device("0000:05:00.0");
  link("0000:05:00.0", "16", "16");
  for (const char* speed : {"", "Unknown", "Unknown speed", "16.0", "16.0 MB/s", "nan GT/s",
                            "1e9 GT/s", "-8 GT/s", "0 GT/s", " GT/s", "8  GT/s"}) {
    write("0000:05:00.0", "current_link_speed", speed);
    EXPECT_EQ(found().at(0).link, (PcieLink{16, 16, {}, 32.0})) << speed;
  }
  for (const char* speed : {"8 GT/s", "8.0 GT/s", "8.0 GT/s PCIe"}) {
    write("0000:05:00.0", "current_link_speed", speed);
    EXPECT_EQ(found().at(0).link->transfers, 8.0) << speed;
  }
}

TEST_F(Pci, NoFolderIsNoDevices) { EXPECT_TRUE(found().empty()); }

}  // namespace
}  // namespace klotski
