// Builds without CUDA.

#include "base/error.h"
#include "device/device.h"

namespace klotski {

DeviceList list_devices() {
  return {.devices = {}, .driver = "", .why_none = "this program was built without CUDA"};
}

std::unique_ptr<Device> open_device(int index) {
  fail(ErrorKind::device_unavailable,
       "device {}: this program was built without CUDA; build it with -DKLOTSKI_CUDA=ON", index);
}

}  // namespace klotski
