#include "text/jinja/wrap.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// textwrap knows the ASCII blanks only.
bool is_blank(char32_t c) { return (c >= 9 && c <= 13) || c == U' '; }
bool is_letter(char32_t c) { return is_word(c) && !is_digit(c); }
bool is_word_punctuation(char32_t c) {
  return is_word(c) || c == U'!' || c == U'"' || c == U'\'' || c == U'&' || c == U'.' ||
         c == U',' || c == U'?';
}

using Text = std::u32string;

bool is_dash_run(const Text& text, size_t at) {
  return at + 1 < text.size() && text[at] == U'-' && text[at + 1] == U'-';
}

// A hyphen at `at` ends a chunk if letters stand before it, and two letters (or a letter, a hyphen
// and a letter) behind it.
bool breaks_behind_hyphen(const Text& text, size_t begin, size_t at) {
  const auto letter = [&](size_t i) { return i < text.size() && is_letter(text[i]); };
  const bool two_before = at >= begin + 2 && letter(at - 1) && letter(at - 2);
  const bool hyphenated_before =
      at >= begin + 3 && letter(at - 1) && text[at - 2] == U'-' && letter(at - 3);
  const bool behind =
      letter(at + 1) &&
      (letter(at + 2) || (at + 2 < text.size() && text[at + 2] == U'-' && letter(at + 3)));
  return (two_before || hyphenated_before) && behind;
}

// The end of the chunk that begins at `begin`.
size_t chunk_end(const Text& text, size_t begin, bool hyphens) {
  size_t at = begin;
  if (is_blank(text[at])) {
    while (at < text.size() && is_blank(text[at])) ++at;
    return at;
  }
  if (!hyphens) {
    while (at < text.size() && !is_blank(text[at])) ++at;
    return at;
  }
  // A dash between words is a chunk of its own.
  if (begin > 0 && is_word_punctuation(text[begin - 1]) && is_dash_run(text, begin)) {
    while (at < text.size() && text[at] == U'-') ++at;
    if (at < text.size() && is_word(text[at])) return at;
    at = begin;
  }
  for (++at; at < text.size() && !is_blank(text[at]); ++at) {
    if (text[at - 1] == U'-' && breaks_behind_hyphen(text, begin, at - 1)) return at;
    if (is_dash_run(text, at) && is_word_punctuation(text[at - 1])) {
      size_t dash_end = at;
      while (dash_end < text.size() && text[dash_end] == U'-') ++dash_end;
      if (dash_end < text.size() && is_word(text[dash_end])) return at;
    }
  }
  return at;
}

std::string to_utf8(const Text& text) {
  std::string out;
  for (const char32_t c : text) append_code_point(&out, c);
  return out;
}

// Splits a chunk that is longer than a line; the first part has at most `room` characters.
size_t long_word_end(const Text& chunk, int64_t room, const WrapOptions& options) {
  if (!options.break_long_words) return chunk.size();
  const auto end = static_cast<size_t>(std::max<int64_t>(room, 0));
  if (options.break_on_hyphens && end > 0 && chunk.size() > end) {
    const size_t hyphen = chunk.rfind(U'-', end - 1);
    if (hyphen != Text::npos && hyphen > 0 && hyphen < end) {
      for (size_t i = 0; i < hyphen; ++i) {
        if (chunk[i] != U'-') return hyphen + 1;
      }
    }
  }
  return std::min(end, chunk.size());
}

bool is_all_space(const Text& text) { return std::all_of(text.begin(), text.end(), is_space); }

class Wrapper {
 public:
  Wrapper(Runtime& runtime, const WrapOptions& options) : runtime_(runtime), options_(options) {}

  std::vector<std::string> run(std::vector<Text> chunks) {
    for (size_t i = 0; i < chunks.size();) {
      runtime_.budget().step();
      Text& chunk = chunks[i];
      if (line_.empty() && !lines_.empty() && is_all_space(chunk)) {
        ++i;  // blanks at the beginning of a line that is not the first are dropped
      } else if (fits(chunk)) {
        line_.push_back(chunk);
        size_ += static_cast<int64_t>(chunk.size());
        ++i;
      } else if (static_cast<int64_t>(chunk.size()) > options_.width) {
        take_long_word(&chunk);
        if (chunk.empty()) ++i;
        finish_line();
      } else {
        finish_line();
      }
    }
    finish_line();
    return std::move(lines_);
  }

 private:
  bool fits(const Text& chunk) const {
    return size_ + static_cast<int64_t>(chunk.size()) <= options_.width;
  }

  void take_long_word(Text* chunk) {
    if (!options_.break_long_words && !line_.empty()) return;
    runtime_.budget().scan(chunk->size() * sizeof(char32_t));
    const size_t end = long_word_end(*chunk, options_.width - size_, options_);
    line_.push_back(chunk->substr(0, end));
    chunk->erase(0, end);
  }

  void finish_line() {
    if (!line_.empty() && is_all_space(line_.back())) line_.pop_back();
    if (!line_.empty()) {
      std::string text;
      for (const Text& part : line_) text += to_utf8(part);
      runtime_.budget().allocate(text.size());
      lines_.push_back(std::move(text));
    }
    line_.clear();
    size_ = 0;
  }

  Runtime& runtime_;
  const WrapOptions& options_;
  std::vector<std::string> lines_;
  std::vector<Text> line_;
  int64_t size_ = 0;
};

}  // namespace

std::vector<std::string> wrap_text(Runtime& runtime, std::string_view text,
                                   const WrapOptions& options) {
  if (options.width <= 0) raise("wordwrap needs a width above 0");
  runtime.budget().allocate(text.size(), sizeof(char32_t));
  Text characters;
  for (size_t at = 0; at < text.size();) characters += next_code_point(text, &at);
  std::vector<Text> chunks;
  for (size_t begin = 0; begin < characters.size();) {
    const size_t end = chunk_end(characters, begin, options.break_on_hyphens);
    runtime.budget().allocate(sizeof(Text));
    chunks.push_back(characters.substr(begin, end - begin));
    begin = end;
  }
  return Wrapper(runtime, options).run(std::move(chunks));
}

}  // namespace klotski::jinja
