#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "device/cuda_call_cuda.h"
#include "device/cuda_device.h"
#include "device/device.h"

namespace klotski {

namespace {

constexpr int kLeastCapability = 75;  // 10 * major + minor

// 13020 is CUDA 13.2.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string why_no_driver(int driver_version) {
  if (driver_version == 0) {
    return "no NVIDIA driver was found (libcuda.so.1); install one for CUDA " +
           std::to_string(CUDART_VERSION / 1000) + " or newer";
  }
  return fmt::format(
      "the NVIDIA driver knows CUDA {} at most and this program was built with {}; install a "
      "driver "
      "for CUDA {} or newer",
      version_text(driver_version), version_text(CUDART_VERSION), CUDART_VERSION / 1000);
}

std::string why_no_device() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return "the NVIDIA driver finds no device";
  return fmt::format("the NVIDIA driver finds no device; CUDA_VISIBLE_DEVICES is {}",
                     in_quotes(visible));
}

// Lists the devices and returns why there are none, or nothing. Makes no context.
std::string find_devices(int driver_version, std::vector<DeviceInfo>& devices) {
  int count = 0;
  const cudaError_t result = cuda::cuda_result(cudaGetDeviceCount(&count));
  if (result != cudaSuccess) cudaGetLastError();
  if (result == cudaErrorInsufficientDriver) return why_no_driver(driver_version);
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) return why_no_device();
  cuda::check_cuda(result, "cudaGetDeviceCount");
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    cuda::check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    devices.push_back({.index = index,
                       .name = properties.name,
                       .major = properties.major,
                       .minor = properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .total_bytes = properties.totalGlobalMem,
                       .pci_address = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                                  properties.pciBusID, properties.pciDeviceID)});
  }
  return "";
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  try {
    int version = 0;  // stays so without a driver
    cuda::check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    if (version > 0) list.driver = version_text(version);
    list.why_none = find_devices(version, list.devices);
  } catch (const Error& error) {
    list.devices.clear();
    list.why_none = error.what();
  }
  return list;
}

std::unique_ptr<Device> open_device(int index) {
  const DeviceList list = list_devices();
  const auto count = static_cast<int>(list.devices.size());
  if (count == 0) fail(ErrorKind::device_unavailable, "device {}: {}", index, list.why_none);
  if (index < 0 || index >= count) {
    fail(ErrorKind::device_unavailable, "device {}: there {} {}, numbered from 0", index,
         count == 1 ? "is" : "are", count);
  }
  const DeviceInfo& info = list.devices[static_cast<size_t>(index)];
  if (10 * info.major + info.minor < kLeastCapability) {
    fail(ErrorKind::device_unavailable,
         "device {} ({}): expected compute capability {}.{} or more, found {}.{}", index,
         in_quotes(info.name), kLeastCapability / 10, kLeastCapability % 10, info.major,
         info.minor);
  }
  return cuda::open(info);
}

}  // namespace klotski
