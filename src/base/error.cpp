#include "base/error.h"

#include <algorithm>

namespace klotski {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::bad_model:
      return 3;
    case ErrorKind::does_not_fit:
      return 4;
    case ErrorKind::device_unavailable:
      return 5;
    case ErrorKind::device_lost:
      return 6;
  }
  return 1;
}

namespace {

// Length of the well-formed UTF-8 sequence at the front of text, or 0.
size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
  const bool too_large = lead == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

// Appends text with its unprintable characters escaped, and the characters of `also` behind a
// backslash.
void append_escaped(std::string& out, std::string_view text, size_t max_bytes,
                    std::string_view also) {
  for (size_t taken = 0; taken < text.size();) {
    const std::string_view rest = text.substr(taken);
    const size_t length = utf8_sequence_length(rest);
    const size_t step = std::max<size_t>(length, 1);
    if (taken + step > max_bytes) {
      out += "...";
      return;
    }
    const auto byte = static_cast<unsigned char>(rest[0]);
    // U+0080 to U+009F are commands to a terminal as well.
    const bool c1_control = length == 2 && byte == 0xC2 && (rest[1] & 0x20) == 0;
    if (length == 0 || byte < 0x20 || byte == 0x7F || c1_control) {
      const auto code = c1_control ? static_cast<unsigned char>(rest[1]) : byte;
      out += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : fmt::format("\\x{:02x}", code);
    } else {
      if (also.find(rest[0]) != std::string_view::npos) out += '\\';
      out += rest.substr(0, length);
    }
    taken += step;
  }
}

}  // namespace

std::string in_quotes(std::string_view text, size_t max_bytes) {
  std::string out = "'";
  append_escaped(out, text, max_bytes, "'\\");
  return out + "'";
}

std::string path_in_quotes(const std::filesystem::path& path) {
  constexpr size_t kMostBytes = 300;
  return in_quotes(path.native(), kMostBytes);
}

std::string one_line(std::string_view message, size_t max_bytes) {
  std::string out;
  append_escaped(out, message, max_bytes, "");
  return out;
}

}  // namespace klotski
