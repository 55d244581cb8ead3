// The bytes are a trace of requests. An accepted one keeps to every bound, at any rate.

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "session/arrivals.h"

namespace {

void check(const std::vector<klotski::Arrival>& arrivals) {
  double last = 0.0;
  for (const klotski::Arrival& arrival : arrivals) {
    if (!(arrival.seconds >= last) || !std::isfinite(arrival.seconds)) std::abort();
    last = arrival.seconds;
    if (arrival.prompt_tokens < 1 || arrival.generated_tokens < 1) std::abort();
    const auto blocks = static_cast<int64_t>(arrival.blocks.size());
    if (blocks > 0 && (blocks - 1) * klotski::kBlockTokens >= arrival.prompt_tokens) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  try {
    std::vector<Arrival> arrivals =
        read_arrivals(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    if (arrivals.empty()) std::abort();
    check(arrivals);
    set_arrival_rate(arrivals, 2.0);
    check(arrivals);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) std::abort();
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
