#pragma once

// The bytes of a job's journal: a mark, then records of a length, a checksum and a payload each.
// The first record is the head, a JSON text that says which job it is; each other record is the
// result of a row. Records are only ever appended, so that a crash leaves whole records and at most
// a torn tail.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace klotski {

// The result of a row.
struct JournalRow {
  int64_t row = 0;      // from 0, in the order of the input, blank lines left out
  bool failed = false;  // refused, or fine and still failed
  std::string text;     // line of the output, with its end

  bool operator==(const JournalRow&) const = default;
};

inline constexpr std::string_view kJournalMark = "klotski journal\n";
inline constexpr uint64_t kMostRecordBytes = uint64_t{1} << 30;

std::string head_record(std::string_view head);
std::string row_record(const JournalRow& row);

// Reads records without trust in any byte.
class JournalReader {
 public:
  // Fills the span with bytes from an offset on, all of which lie within the size.
  using ReadAt = std::function<void(uint64_t offset, std::span<char> out)>;

  JournalReader(uint64_t size, ReadAt read_at) : size_(size), read_at_(std::move(read_at)) {}

  // The head; nothing where the journal has no whole one. To be called first.
  std::optional<std::string> head();
  // Whether a journal without a whole head may be one whose first write was cut short: all of it is
  // a piece of a mark and a head, or zeros.
  bool torn_at_birth();
  // The next row; false where no whole record follows.
  bool next(JournalRow& row);

  uint64_t row_offset() const { return row_offset_; }  // offset of the row read last
  uint64_t whole_bytes() const { return at_; }         // end of the record read last

 private:
  bool read_record();
  std::string_view bytes(uint64_t offset, uint64_t count);

  uint64_t size_;
  ReadAt read_at_;
  uint64_t at_ = 0;
  uint64_t row_offset_ = 0;
  std::string payload_;
  std::string window_;  // bytes read ahead
  uint64_t window_begin_ = 0;
};

}  // namespace klotski
