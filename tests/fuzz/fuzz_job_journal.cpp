// The bytes are the journal of a batch job. Rows that are read must come back equal when they are
// written again, and a torn or foreign one must be told from a whole one without a crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "batch/journal_records.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

klotski::JournalReader reader_of(const std::string& bytes) {
  return {bytes.size(), [&bytes](uint64_t offset, std::span<char> out) {
            require(offset <= bytes.size() && out.size() <= bytes.size() - offset);
            std::memcpy(out.data(), bytes.data() + offset, out.size());
          }};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  klotski::JournalReader reader = reader_of(bytes);
  const std::optional<std::string> head = reader.head();
  if (!head) {
    klotski::JournalReader torn = reader_of(bytes);
    torn.torn_at_birth();
    return 0;
  }
  std::string again = klotski::head_record(*head);
  for (klotski::JournalRow row; reader.next(row);) {
    require(row.row >= 0 && reader.row_offset() < reader.whole_bytes());
    again += klotski::row_record(row);
  }
  require(again == bytes.substr(0, reader.whole_bytes()));
  return 0;
}
