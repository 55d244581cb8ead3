// The bytes are a klotski-quantization.json. An accepted one must be equal when written and read
// again.

#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "model/quantization_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  try {
    const QuantizationRecord record =
        parse_quantization_record({reinterpret_cast<const char*>(data), size}, "record");
    const QuantizationRecord again = parse_quantization_record(record.as_text(), "record");
    if (again.errors != record.errors) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
