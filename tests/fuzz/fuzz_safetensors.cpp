// The input is a whole safetensors file. An Error is a fair answer; entries that do not cover the
// data exactly once, another exception or a crash is a bug.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "tensor/shape.h"
#include "weights/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_entries(std::vector<klotski::TensorEntry> entries, uint64_t data_begin,
                   uint64_t file_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const klotski::TensorEntry& a, const klotski::TensorEntry& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
            });
  uint64_t end = data_begin;
  for (const klotski::TensorEntry& entry : entries) {
    uint64_t bytes = 0;
    require(klotski::byte_count(entry.shape, entry.dtype, &bytes));
    require(bytes == entry.bytes && entry.offset == end);
    require(entry.shape.size() <= klotski::kMaxTensorRank);
    end += bytes;
  }
  require(end == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    auto entries = klotski::parse_safetensors(file, "fuzz");
    const uint64_t header_bytes = klotski::parse_safetensors_prefix(file, size, "fuzz");
    check_entries(std::move(entries), klotski::kSafetensorsPrefixBytes + header_bytes, size);
  } catch (const klotski::Error& error) {
    require(error.kind() == klotski::ErrorKind::bad_model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
