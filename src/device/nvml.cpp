#include "device/nvml.h"

#include <dlfcn.h>

#include <memory>

namespace klotski {

namespace {

// Types as the library's interface has them; every call returns 0 for success.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;  // the driver's own memory included
};

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <typename Function>
Function* function_of(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library.get(), name));
}

}  // namespace

std::optional<uint64_t> nvml_free_bytes(const std::string& pci_address) {
  const Library library(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) return std::nullopt;
  const auto start = function_of<int()>(library, "nvmlInit_v2");
  const auto stop = function_of<int()>(library, "nvmlShutdown");
  const auto find =
      function_of<int(const char*, NvmlDevice*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto ask = function_of<int(NvmlDevice, NvmlMemory*)>(library, "nvmlDeviceGetMemoryInfo");
  if (!start || !stop || !find || !ask || start() != 0) return std::nullopt;
  NvmlDevice device = nullptr;
  NvmlMemory memory{};
  const bool known = find(pci_address.c_str(), &device) == 0 && ask(device, &memory) == 0;
  stop();
  if (!known) return std::nullopt;
  return memory.free;
}

}  // namespace klotski
