#include "weights/gguf_cursor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "text/utf8.h"
#include "weights/gguf.h"

namespace klotski {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

constexpr uint64_t kReadBytes = 256 * kKiB;  // bytes read from the file at once

}  // namespace

GgufCursor::GgufCursor(Read read, uint64_t file_bytes, std::string_view what)
    : read_(std::move(read)),
      file_bytes_(file_bytes),
      end_(std::min(file_bytes, kMaxGgufHeaderBytes)),
      what_(what) {}

const std::byte* GgufCursor::take(uint64_t bytes, std::string_view thing) {
  if (bytes > left()) {
    fail(ErrorKind::bad_model, "{}: {}: expected {} bytes at byte {}, found {}{}", what_, thing,
         bytes, position(), left(),
         file_bytes_ > end_ ? fmt::format(" before the limit of {} for all before the data",
                                          format_bytes(kMaxGgufHeaderBytes))
                            : "; is the file cut short?");
  }
  if (bytes > buffer_.size() - at_) {
    const uint64_t position_now = position();
    const uint64_t wanted = std::min(std::max(bytes, kReadBytes), left());
    buffer_.resize(wanted);
    read_(position_now, std::as_writable_bytes(std::span(buffer_)));
    begin_ = position_now;
    at_ = 0;
  }
  const auto* taken = reinterpret_cast<const std::byte*>(buffer_.data()) + at_;
  at_ += bytes;
  return taken;
}

template <typename Number>
Number GgufCursor::number(std::string_view thing) {
  Number value{};
  std::memcpy(&value, take(sizeof(value), thing), sizeof(value));
  return value;
}

template uint8_t GgufCursor::number(std::string_view);
template int8_t GgufCursor::number(std::string_view);
template uint16_t GgufCursor::number(std::string_view);
template int16_t GgufCursor::number(std::string_view);
template uint32_t GgufCursor::number(std::string_view);
template int32_t GgufCursor::number(std::string_view);
template uint64_t GgufCursor::number(std::string_view);
template int64_t GgufCursor::number(std::string_view);
template float GgufCursor::number(std::string_view);
template double GgufCursor::number(std::string_view);

std::string GgufCursor::text(std::string_view thing, uint64_t most_bytes) {
  const auto bytes = number<uint64_t>(thing);
  if (bytes > std::min(most_bytes, left())) {
    fail(ErrorKind::bad_model, "{}: {}: expected a text of at most {} bytes, found a length of {}",
         what_, thing, std::min(most_bytes, left()), bytes);
  }
  const auto* begin = reinterpret_cast<const char*>(take(bytes, thing));
  std::string text(begin, bytes);
  if (!is_valid_utf8(text)) {
    fail(ErrorKind::bad_model, "{}: {}: expected UTF-8, found {}", what_, thing, in_quotes(text));
  }
  return text;
}

uint64_t GgufCursor::count(std::string_view thing, uint64_t least_bytes, uint64_t most) {
  const auto count = number<uint64_t>(thing);
  if (count > most) {
    fail(ErrorKind::bad_model, "{}: {}: expected at most {}, found {}", what_, thing, most, count);
  }
  if (count > left() / least_bytes) {
    fail(ErrorKind::bad_model,
         "{}: {}: expected at most {}, which is all that the remaining {} bytes can hold, found {}",
         what_, thing, left() / least_bytes, left(), count);
  }
  return count;
}

}  // namespace klotski
