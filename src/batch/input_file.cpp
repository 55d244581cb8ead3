#include "batch/input_file.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/content_hash.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "batch/row.h"

namespace klotski {

namespace {

constexpr uint64_t kPieceBytes = 256 * kKiB;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct IdHash {
  uint64_t hash;
  uint64_t offset;  // offset of the line
};

// The row of a line; nothing where it is none, which is an error of that row alone.
std::optional<RowEnvelope> row_of(const InputLine& line, const std::filesystem::path& path) {
  if (line.too_long) return std::nullopt;
  try {
    return parse_envelope(line.text);
  } catch (const BadRow&) {
    return std::nullopt;
  } catch (const Error& error) {
    fail(error.kind(), "{}, line {}: {}", path_in_quotes(path), line.number, error.what());
  }
}

// Lines with equal hashes are read again, which is rare unless ids are equal indeed.
void refuse_equal_ids(InputFile& input, std::span<const IdHash> same_hash) {
  struct Seen {
    int64_t line;
    std::optional<std::string> id;
  };
  std::vector<Seen> seen;
  input.rewind();
  for (InputLine line; seen.size() < same_hash.size() && input.next(line);) {
    if (line.offset != same_hash[seen.size()].offset) continue;
    const auto row = row_of(line, input.path());
    const auto id = row ? std::optional(row->custom_id) : std::nullopt;
    for (const Seen& other : seen) {
      if (other.id != id) continue;
      fail(ErrorKind::usage, "{}: custom_id {} is on lines {} and {}; each row needs its own",
           path_in_quotes(input.path()), in_quotes(id.value_or("")), other.line, line.number);
    }
    seen.push_back({line.number, id});
  }
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, uint64_t max_line_bytes)
    : path_(path),
      file_(open_input(path)),
      bytes_(bytes_of(file_)),
      max_line_bytes_(max_line_bytes) {}

void InputFile::rewind() {
  bytes_->rewind();
  read_ = 0;
  rows_ = 0;
  buffer_.clear();
  at_ = 0;
  lines_ = 0;
}

bool InputFile::read_piece() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  // A long line lies in two places while the buffer grows to twice its size, then in a line's text.
  if (before > kMiB && before + kPieceBytes > buffer_.capacity()) {
    require_memory(3 * before, allowed_memory_left(), path_in_quotes(path_));
  }
  buffer_.resize(before + kPieceBytes);
  const size_t bytes = bytes_->read(std::span(buffer_).subspan(before));
  buffer_.resize(before + bytes);
  read_ += bytes;
  return bytes > 0;
}

bool InputFile::read_line(InputLine& line) {
  line = {.number = ++lines_, .offset = read_ - (buffer_.size() - at_), .text = {}};
  size_t searched = at_;
  size_t end = 0;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    if (buffer_.size() - at_ > max_line_bytes_) {
      line.too_long = true;
      at_ = buffer_.size();
    }
    searched = buffer_.size() - at_;
    if (!read_piece()) break;
  }
  if (end == std::string::npos) {
    if (at_ == buffer_.size() && !line.too_long) return false;
    end = buffer_.size();
  }
  line.too_long = line.too_long || end - at_ > max_line_bytes_;
  if (!line.too_long) line.text = buffer_.substr(at_, end - at_);
  at_ = std::min(end + 1, buffer_.size());
  if (line.offset == 0 && line.text.starts_with(kByteOrderMark)) {
    line.text.erase(0, kByteOrderMark.size());
  }
  if (line.text.ends_with('\r')) line.text.pop_back();
  return true;
}

bool InputFile::next(InputLine& line) {
  while (read_line(line)) {
    if (!line.too_long && line.text.find_first_not_of(" \t") == std::string::npos) continue;
    line.row = rows_++;
    return true;
  }
  return false;
}

InputSize measure_rows(InputFile& input) {
  InputSize size;
  std::vector<IdHash> hashes;
  ContentHash content;
  input.rewind();
  for (InputLine line; input.next(line); ++size.rows) {
    content.add(static_cast<uint64_t>(line.number));
    content.add(line.text);
    size.bytes += line.text.size();
    size.longest_bytes = std::max<uint64_t>(size.longest_bytes, line.text.size());
    const auto row = row_of(line, input.path());
    if (!row) continue;
    hashes.push_back({std::hash<std::string>()(row->custom_id), line.offset});
    size.json_bytes = std::max(size.json_bytes, row->json_bytes);
  }
  std::sort(hashes.begin(), hashes.end(), [](const IdHash& a, const IdHash& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.offset < b.offset;
  });
  for (size_t begin = 0, end = 0; begin < hashes.size(); begin = end) {
    while (end < hashes.size() && hashes[end].hash == hashes[begin].hash) ++end;
    if (end - begin > 1) refuse_equal_ids(input, std::span(hashes).subspan(begin, end - begin));
  }
  input.rewind();
  size.hash = content.text();
  return size;
}

}  // namespace klotski
