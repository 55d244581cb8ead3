#include "text/utf8.h"

#include <cstring>

namespace klotski {

namespace {

struct LeadByte {
  uint32_t length;            // bytes of the whole character; 0: cannot begin one
  unsigned char least, most;  // bounds of the second byte: no overlong forms, no surrogates
};

constexpr LeadByte classify(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many bytes at `at` agree with the shape that the lead byte announces.
uint32_t agreeing_bytes(std::string_view text, size_t at, const LeadByte& shape) {
  uint32_t count = 1;
  while (count < shape.length && at + count < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at + count]);
    const unsigned char least = count == 1 ? shape.least : 0x80;
    const unsigned char most = count == 1 ? shape.most : 0xBF;
    if (byte < least || byte > most) break;
    ++count;
  }
  return count;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  const LeadByte shape = classify(lead);
  const uint32_t count = shape.length == 0 ? 1 : agreeing_bytes(text, at, shape);
  if (shape.length == 0 || count < shape.length) return {kReplacementCharacter, count, false};
  char32_t code = lead & (0x7Fu >> shape.length);
  for (uint32_t i = 1; i < count; ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  }
  return {code, count, true};
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
    return;
  }
  const int continuations = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const unsigned lead_mark = continuations == 1 ? 0xC0 : continuations == 2 ? 0xE0 : 0xF0;
  out.push_back(static_cast<char>(lead_mark | (code >> (6 * continuations))));
  for (int i = continuations - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F)));
  }
}

size_t count_utf8_chars(std::string_view valid_text) {
  size_t count = 0;
  for (const char byte : valid_text) count += is_utf8_continuation(byte) ? 0 : 1;
  return count;
}

size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080ull) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = ascii_prefix(text); at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    if (!next.valid) return false;
    at += next.bytes;
  }
  return true;
}

void append_lossy_utf8(std::string& out, std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char next = decode_utf8(bytes, at);
    out.append(next.valid ? bytes.substr(at, next.bytes) : kReplacementText);
    at += next.bytes;
  }
}

size_t unfinished_utf8_tail(std::string_view bytes) {
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const size_t at = bytes.size() - back;
    if (is_utf8_continuation(bytes[at])) continue;
    const LeadByte shape = classify(static_cast<unsigned char>(bytes[at]));
    const bool unfinished = shape.length > back && agreeing_bytes(bytes, at, shape) == back;
    return unfinished ? back : 0;
  }
  return 0;
}

}  // namespace klotski
