// The bytes are a file of activation matrices (--eamc). What is accepted must be written and read
// again as the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "experts/activation_collection.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  const RoutingTraceShape shape{.model = "fuzz",
                                .layers = {{LayerId(0), 2, 1}, {LayerId(2), 3, 2}}};
  constexpr int64_t kCapacity = 4;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const ActivationHistory history = ActivationHistory::parse(text, "fuzz", shape, kCapacity);
    require(history.prompt.size() <= kCapacity && history.decode.size() <= kCapacity);
    require(ActivationHistory::parse(history.text(), "again", shape, kCapacity).text() ==
            history.text());
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
