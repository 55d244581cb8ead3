#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/file.h"
#include "batch/byte_source.h"

namespace klotski {

// Rows that a job reads between two commits, where none of them runs.
inline constexpr int64_t kMostReadAtOnce = 256;

// Longer lines are handed out as such, without their text.
inline constexpr uint64_t kMaxLineBytes = 64 * kMiB;

struct InputLine {
  int64_t number = 0;   // from 1, blank lines included
  int64_t row = 0;      // from 0, blank lines left out
  uint64_t offset = 0;  // offset of its first byte, unpacked
  std::string text;     // text without line end and byte-order mark
  bool too_long = false;
};

// The lines of a JSONL file, read in pieces so that memory does not grow with the file. Blank lines
// are left out; lines may end with CRLF, and the last one without a line end. "-" is standard
// input; gzip and Zstandard are unpacked.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path, uint64_t max_line_bytes = kMaxLineBytes);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return file_.descriptor(); }

  bool next(InputLine& line);  // false at the end
  void rewind();

 private:
  bool read_line(InputLine& line);
  bool read_piece();

  std::filesystem::path path_;
  File file_;
  std::unique_ptr<ByteSource> bytes_;
  uint64_t max_line_bytes_;
  uint64_t read_ = 0;   // unpacked bytes that went into the buffer
  std::string buffer_;  // bytes from at_ on are not handed out yet
  size_t at_ = 0;
  int64_t lines_ = 0;
  int64_t rows_ = 0;
};

struct InputSize {
  int64_t rows = 0;
  uint64_t bytes = 0;          // bytes of all rows
  uint64_t longest_bytes = 0;  // bytes of the longest row
  uint64_t json_bytes = 0;     // most bytes that reading a row's JSON held at once
  std::string hash{};          // hash of all rows and their lines' numbers
};

// Reads the whole file once and returns its size. Refuses (usage) a custom_id that occurs twice,
// naming both lines. Takes 16 bytes of memory a row.
InputSize measure_rows(InputFile& input);

}  // namespace klotski
