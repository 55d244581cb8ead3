// The input is a whole GGUF file. An Error is a fair answer; tensors that overlap or leave the
// file, another exception or a crash is a bug. A file that is accepted goes on to the readers of
// its tokenizer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "tensor/shape.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "weights/gguf.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tensors(std::vector<klotski::TensorEntry> entries, uint64_t file_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const klotski::TensorEntry& a, const klotski::TensorEntry& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
            });
  uint64_t end = 0;
  for (const klotski::TensorEntry& entry : entries) {
    uint64_t bytes = 0;
    require(klotski::byte_count(entry.shape, entry.dtype, &bytes));
    require(bytes == entry.bytes && entry.offset >= end && bytes <= file_bytes &&
            entry.offset <= file_bytes - bytes);
    end = entry.offset + bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const klotski::GgufFile file =
        klotski::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
    check_tensors(file.tensors, size);
    klotski::gguf_split(file, "fuzz");
    klotski::TokenizerConfig::from_gguf(file.metadata, "fuzz");
    klotski::Tokenizer::from_gguf(file.metadata, "fuzz").encode("a b<s>\n", {.add_special = true});
  } catch (const klotski::Error& error) {
    require(error.kind() == klotski::ErrorKind::bad_model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
