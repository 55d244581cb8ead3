// Work on text that methods and filters share.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// The characters that a strip takes away. A set, since both the text and this may be long.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view characters) {
    for (size_t at = 0; at < characters.size();) {
      const char32_t c = next_code_point(characters, &at);
      if (c < ascii_.size()) {
        ascii_[c] = true;
      } else {
        others_.insert(c);
      }
    }
  }

  bool has(char32_t c) const { return c < ascii_.size() ? ascii_[c] : others_.count(c) != 0; }

 private:
  std::array<bool, 128> ascii_{};
  std::unordered_set<char32_t> others_;
};

Value split_at_space(Runtime& runtime, std::string_view text, int64_t most) {
  std::vector<Value> parts;
  text = strip_space(text, true, false);
  while (!text.empty()) {
    size_t end = 0;
    if (static_cast<int64_t>(parts.size()) >= most) {
      end = text.size();
    } else {
      while (end < text.size()) {
        size_t after = end;
        if (is_space(next_code_point(text, &after))) break;
        end = after;
      }
    }
    // The rest, once the count is reached, keeps the spaces at its end, as in Python.
    parts.push_back(runtime.text(std::string(text.substr(0, end))));
    text = strip_space(text.substr(end), true, false);
  }
  return runtime.list(std::move(parts));
}

}  // namespace

Value split_text(Runtime& runtime, std::string_view text, const Value& separator, int64_t most) {
  runtime.budget().scan(text.size());
  if (most < 0) most = INT64_MAX;
  if (separator.is(Kind::none)) return split_at_space(runtime, text, most);
  if (!separator.is_string()) raise("split() expects a string, found {}", type_name(separator));
  const std::string& by = separator.text();
  if (by.empty()) raise("split() by an empty separator");
  charge_search(runtime, text, by);
  std::vector<Value> parts;
  size_t begin = 0;
  while (static_cast<int64_t>(parts.size()) < most) {
    const size_t at = find_text(text, by, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(runtime.text(std::string(text.substr(begin, at - begin))));
    begin = at + by.size();
  }
  parts.push_back(runtime.text(std::string(text.substr(begin))));
  return runtime.list(std::move(parts));
}

std::string replace_text(Runtime& runtime, std::string_view text, std::string_view from,
                         std::string_view to, int64_t most) {
  charge_search(runtime, text, from);
  TextBuilder out(runtime);
  int64_t left = most < 0 ? INT64_MAX : most;
  size_t begin = 0;
  while (left > 0) {
    // An empty pattern matches before every character and at the end.
    if (from.empty()) {
      out.append(to);
      --left;
      if (begin >= text.size()) return out.take();
      size_t after = begin;
      next_code_point(text, &after);
      out.append(text.substr(begin, after - begin));
      begin = after;
      continue;
    }
    const size_t at = find_text(text, from, begin);
    if (at == std::string_view::npos) break;
    out.append(text.substr(begin, at - begin));
    out.append(to);
    begin = at + from.size();
    --left;
  }
  out.append(text.substr(begin));
  return out.take();
}

int64_t missing_width(const Value& text, int64_t width) {
  const int64_t length = length_of(text);
  return width <= length ? 0 : width - length;
}

std::string center_text(Runtime& runtime, const Value& text, int64_t width, std::string_view fill) {
  const int64_t missing = missing_width(text, width);
  const int64_t left = missing / 2 + (missing & width & 1);
  TextBuilder out(runtime);
  out.append_repeated(fill, left);
  out.append(text.text());
  out.append_repeated(fill, missing - left);
  return out.take();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, &at);
    if (!is_line_end(c)) continue;
    if (c == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view strip_characters(Runtime& runtime, std::string_view text,
                                  std::string_view characters, bool left, bool right) {
  runtime.budget().scan_characters(characters.size());
  const CharacterSet set(characters);
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t after = begin;
    if (!set.has(next_code_point(text, &after))) break;
    begin = after;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    if (!set.has(next_code_point(text, &at))) break;
    end = start;
  }
  runtime.budget().scan_characters(text.size() - (end - begin));
  return text.substr(begin, end - begin);
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace klotski::jinja
