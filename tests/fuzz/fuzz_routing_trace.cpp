// The bytes are a routing trace. An accepted one must come back equal when written again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "experts/routing_trace.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Up to 100 records suffice to find a disagreement.
void check_round_trip(klotski::RoutingTraceReader& reader) {
  std::ostringstream out;
  klotski::RoutingTraceWriter writer(out, reader.shape());
  klotski::RoutingRecord record;
  int64_t records = 0;
  for (; records < 100 && reader.next(record); ++records) writer.append(record);
  const std::string bytes = out.str();
  klotski::RoutingTraceReader again(std::as_bytes(std::span(bytes)), "again");
  require(again.shape() == reader.shape() && again.records() == records);
  while (again.next(record)) --records;
  require(records == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    klotski::RoutingTraceReader reader(std::as_bytes(std::span(data, size)), "fuzz");
    check_round_trip(reader);
  } catch (const klotski::Error& error) {
    require(error.kind() == klotski::ErrorKind::bad_model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
