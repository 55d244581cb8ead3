#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/bytes.h"
#include "base/error.h"
#include "weights/header_handler.h"

namespace klotski {

namespace {

// Limits on single tokens, since the JSON library holds several copies of the token it reads and
// quotes a bad one whole. Metadata may hold long texts, pictures included.
constexpr size_t kMaxStringBytes = 4 * kMiB;
constexpr size_t kMaxRunBytes = 4096;  // digits, letters or spaces between other tokens

// `"":{"dtype":"U8","shape":[],"data_offsets":[0,0]},` is the shortest entry there is.
constexpr size_t kLeastEntryBytes = 50;

constexpr std::string_view kJsonSpaces = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kJsonSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kJsonSpaces) - begin + 1);
}

[[noreturn]] void refuse_token(std::string_view what, size_t limit, size_t position) {
  fail(ErrorKind::bad_model, "{}: the header: expected no token above {} bytes, found one at {}",
       what, limit, position);
}

// Bytes that end a token or a string of a header, or mean something within one; others have kind 0.
enum ByteKind : uint8_t { kSeparator = 1, kQuote = 2, kEscape = 4, kNul = 8 };

constexpr std::array<uint8_t, 256> kByteKinds = [] {
  std::array<uint8_t, 256> kinds{};
  for (const unsigned char c : {',', ':', '{', '}', '[', ']'}) kinds[c] = kSeparator;
  kinds['"'] = kQuote;
  kinds['\\'] = kEscape;
  kinds['\0'] = kNul;
  return kinds;
}();

// Returns the first position from `begin` on whose byte is of one of `kinds`, or the text's end.
size_t find_kind(std::string_view text, size_t begin, uint8_t kinds) {
  size_t i = begin;
  while (i < text.size() && !(kByteKinds[static_cast<unsigned char>(text[i])] & kinds)) ++i;
  return i;
}

// Walks over the text once, without understanding it: checks the length of every token, refuses NUL
// (which the JSON library takes for the end) and counts the objects.
size_t count_objects(std::string_view text, std::string_view what) {
  size_t objects = 0;
  size_t token_begin = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    i = find_kind(text, i, in_string ? kQuote | kEscape | kNul : kSeparator | kQuote | kNul);
    const size_t limit = in_string ? kMaxStringBytes : kMaxRunBytes;
    if (i - token_begin > limit) refuse_token(what, limit, token_begin);
    if (i == text.size()) break;
    const char c = text[i];
    if (c == '\0') {
      fail(ErrorKind::bad_model, "{}: the header: expected JSON, found a NUL at byte {}", what, i);
    }
    if (c == '\\') {
      ++i;  // what is escaped ends no string
      continue;
    }
    if (c == '{') ++objects;
    in_string = c == '"' && !in_string;
    token_begin = i + 1;
  }
  return objects;
}

// An entry with a key to sort by: reaching for the entry itself at each comparison would be slow.
struct Keyed {
  uint64_t key = 0;
  uint32_t position = 0;  // at most 2 million, by the limit on the header
};

// The positions of the entries by rising key; `less` decides between entries of equal keys.
template <typename Key, typename Less>
std::vector<Keyed> sorted_by(const std::vector<TensorEntry>& entries, Key key, Less less) {
  std::vector<Keyed> sorted(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    sorted[i].key = key(entries[i]);
    sorted[i].position = static_cast<uint32_t>(i);
  }
  std::sort(sorted.begin(), sorted.end(), [&](const Keyed& a, const Keyed& b) {
    return a.key != b.key ? a.key < b.key : less(entries[a.position], entries[b.position]);
  });
  return sorted;
}

// Sorting cannot be slowed down by names made to collide, as a hash table could.
void refuse_duplicate_names(const std::vector<TensorEntry>& entries, std::string_view what) {
  const auto sorted = sorted_by(
      entries, [](const TensorEntry& entry) { return std::hash<std::string>()(entry.name); },
      [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [&](const Keyed& a, const Keyed& b) {
        return a.key == b.key && entries[a.position].name == entries[b.position].name;
      });
  if (twice != sorted.end()) {
    fail(ErrorKind::bad_model, "{}: the tensor {} appears twice", what,
         in_quotes(entries[twice->position].name));
  }
}

// The tensors must cover the data exactly: no byte belongs to two or to none.
void check_tiling(const std::vector<TensorEntry>& entries, uint64_t data_bytes,
                  std::string_view what) {
  const auto sorted = sorted_by(
      entries, [](const TensorEntry& entry) { return entry.offset; },
      [](const TensorEntry& a, const TensorEntry& b) { return a.bytes < b.bytes; });
  uint64_t end = 0;
  for (const Keyed& keyed : sorted) {
    const TensorEntry& entry = entries[keyed.position];
    if (entry.offset != end) {
      fail(ErrorKind::bad_model,
           "{}: tensor {}: expected it to begin at data offset {}, where the one before ends, "
           "found {}",
           what, in_quotes(entry.name), end, entry.offset);
    }
    end = entry.offset + entry.bytes;  // cannot overflow: it is the end the header gave
  }
  if (end != data_bytes) {
    fail(ErrorKind::bad_model,
         "{}: expected {} bytes of data, as the header says, found {}; is the file cut short?",
         what, end, data_bytes);
  }
}

}  // namespace

uint64_t parse_safetensors_prefix(std::span<const std::byte> prefix, uint64_t file_bytes,
                                  std::string_view what) {
  if (file_bytes < kSafetensorsPrefixBytes || prefix.size() < kSafetensorsPrefixBytes) {
    fail(ErrorKind::bad_model, "{}: expected a safetensors file of at least 8 bytes, found {}",
         what, file_bytes);
  }
  uint64_t header_bytes = 0;
  for (size_t i = kSafetensorsPrefixBytes; i-- > 0;) {
    header_bytes = (header_bytes << 8) | std::to_integer<uint64_t>(prefix[i]);
  }
  const uint64_t most = std::min(file_bytes - kSafetensorsPrefixBytes, kMaxSafetensorsHeaderBytes);
  if (header_bytes == 0 || header_bytes > most) {
    fail(ErrorKind::bad_model,
         "{}: expected a safetensors header of 1 to {} bytes, found a length of {}", what, most,
         header_bytes);
  }
  return header_bytes;
}

std::vector<TensorEntry> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                  std::string_view what) {
  uint64_t data_begin = 0;
  if (!add_checked(kSafetensorsPrefixBytes, header.size(), &data_begin) ||
      data_begin > file_bytes || header.size() > kMaxSafetensorsHeaderBytes) {
    fail(ErrorKind::bad_model, "{}: a header of {} bytes does not fit a file of {}", what,
         header.size(), file_bytes);
  }
  if (header.starts_with("\xEF\xBB\xBF")) {
    fail(ErrorKind::bad_model, "{}: the header: expected JSON, found a byte-order mark", what);
  }
  const std::string_view json = trimmed(header);
  HeaderHandler handler(what, std::min(count_objects(json, what), json.size() / kLeastEntryBytes));
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  std::vector<TensorEntry> entries = handler.take_entries();
  refuse_duplicate_names(entries, what);
  check_tiling(entries, file_bytes - data_begin, what);
  for (TensorEntry& entry : entries) entry.offset += data_begin;
  return entries;
}

std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> file, std::string_view what) {
  const uint64_t header_bytes = parse_safetensors_prefix(file, file.size(), what);
  const auto header = file.subspan(kSafetensorsPrefixBytes, header_bytes);
  return parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()},
                                  file.size(), what);
}

std::vector<TensorEntry> read_safetensors_header(const File& file, std::string_view what) {
  std::array<std::byte, kSafetensorsPrefixBytes> prefix{};
  if (file.size() >= prefix.size()) file.read_at(0, prefix);
  const uint64_t header_bytes = parse_safetensors_prefix(prefix, file.size(), what);
  std::string header(header_bytes, '\0');
  file.read_at(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(header)));
  return parse_safetensors_header(header, file.size(), what);
}

std::vector<TensorEntry> read_safetensors_header(const File& file) {
  return read_safetensors_header(file, path_in_quotes(file.path()));
}

}  // namespace klotski
