// The bytes are a file of the cache folder: a measured profile, or a line of the history of runs.
// Accepted ones must be equal when written and read again.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hardware/profile.h"
#include "hardware/run_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace klotski;
  constexpr std::string_view kFingerprint = "machine";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto profile = read_profile(text, kFingerprint)) {
    if (read_profile(write_profile(*profile, kFingerprint), kFingerprint) != profile) std::abort();
  }
  if (const auto record = read_run_record(text)) {
    if (read_run_record(write_run_record(*record)) != record) std::abort();
  }
  return 0;
}
