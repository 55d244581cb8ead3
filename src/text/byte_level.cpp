#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace klotski {

namespace {

constexpr bool spells_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteSpelling {
  std::array<uint16_t, 256> code_of{};
  std::array<int16_t, 512> byte_of{};
};

constexpr ByteSpelling make_spelling() {
  ByteSpelling spelling;
  for (auto& byte : spelling.byte_of) byte = -1;
  uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto code = spells_itself(byte) ? static_cast<uint16_t>(byte) : next++;
    spelling.code_of[byte] = code;
    spelling.byte_of[code] = static_cast<int16_t>(byte);
  }
  return spelling;
}

constexpr ByteSpelling kSpelling = make_spelling();

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes)
    append_utf8(out, kSpelling.code_of[static_cast<unsigned char>(byte)]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  append_byte_level(out, bytes);
  return out;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    if (next.code >= kSpelling.byte_of.size() || kSpelling.byte_of[next.code] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kSpelling.byte_of[next.code]));
    at += next.bytes;
  }
  return bytes;
}

}  // namespace klotski
