#include <cctype>
#include <vector>

#include "base/error.h"
#include "text/regex.h"
#include "text/regex_class.h"
#include "text/utf8.h"

namespace klotski {

namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Walks a pattern once from left to right, writing PCRE2's form of it.
class Translator {
 public:
  Translator(std::string_view pattern, RegexDialect dialect, std::string_view what)
      : pattern_(pattern), dialect_(dialect), what_(what) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  bool oniguruma() const { return dialect_ == RegexDialect::oniguruma; }
  bool at_text(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void step() {
    switch (pattern_[at_]) {
      case '\\':
        return escape();
      case '[':
        return atom(translate_class(pattern_, &at_, dialect_, what_));
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '{':
        return repeat();
      case '*':
      case '+':
      case '?':
      case '|':
        out_ += pattern_[at_++];
        return;
      default: {
        const size_t bytes = utf8_bytes(pattern_[at_]);
        const std::string_view character = pattern_.substr(at_, bytes);
        at_ += bytes;
        atom(character);
      }
    }
  }

  void atom(std::string_view text) {
    atom_begin_ = out_.size();
    out_ += text;
  }

  void escape() {
    if (++at_ == pattern_.size()) {
      fail(ErrorKind::bad_model, "{}: the pattern {} ends in a backslash", what_,
           in_quotes(pattern_));
    }
    const char letter = pattern_[at_];
    if (letter == 'p' || letter == 'P') {
      return atom(bracketed(read_property(pattern_, &at_, dialect_, what_)));
    }
    const CharacterSet set = shorthand_set(letter, dialect_);
    if (letter == 'w' || letter == 'W') {
      ++at_;
      return atom(bracketed(word_set(letter == 'W')));
    }
    if (!set.members.empty()) {
      ++at_;
      return atom(bracketed(set));
    }
    if (letter == 'b' || letter == 'B') {
      ++at_;
      return atom(word_boundary(letter == 'b'));
    }
    if (letter == 'O' && oniguruma()) {
      ++at_;
      return atom("(?s:.)");
    }
    const std::string character = translate_character_escape(pattern_, &at_);
    if (!character.empty()) return atom(character);
    const size_t bytes = utf8_bytes(letter);
    atom(fmt::format("\\{}", pattern_.substr(at_, bytes)));
    at_ += bytes;
  }

  static std::string bracketed(const CharacterSet& set) {
    // A lone property matches faster outside a class.
    const bool lone = set.members.starts_with("\\p{") && set.members.ends_with('}') &&
                      set.members.find('\\', 1) == std::string::npos;
    if (lone) return fmt::format("\\{}{}", set.complement ? 'P' : 'p', set.members.substr(2));
    return fmt::format("[{}{}]", set.complement ? "^" : "", set.members);
  }

  // Outside a class, Oniguruma's \w also holds the superscripts and fractions of Latin-1.
  CharacterSet word_set(bool complement) const {
    CharacterSet set = shorthand_set(complement ? 'W' : 'w', dialect_);
    if (oniguruma()) set.members += R"(\xb2\xb3\xb9\xbc-\xbe)";
    return set;
  }

  // PCRE2's own \b goes by its own idea of a word.
  std::string word_boundary(bool positive) const {
    const std::string word = bracketed(word_set(false));
    return positive ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                    : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
  }

  void open_group() {
    if (at_text("(*")) {
      fail(ErrorKind::bad_model, "{}: the pattern {} uses (*, which is not supported", what_,
           in_quotes(pattern_));
    }
    groups_.push_back(out_.size());
    if (at_text("(?#")) {
      const size_t end = pattern_.find(')', at_);
      at_ = end == std::string_view::npos ? pattern_.size() : end;
      out_ += "(?:";
      return;
    }
    if (!at_text("(?")) {
      out_ += pattern_[at_++];
      return;
    }
    size_t end = at_ + 2;
    while (end < pattern_.size() &&
           (std::isalpha(static_cast<unsigned char>(pattern_[end])) || pattern_[end] == '-')) {
      ++end;
    }
    const bool options = end < pattern_.size() && (pattern_[end] == ':' || pattern_[end] == ')');
    if (!options) end = at_ + 2;
    for (; at_ < end; ++at_) {
      out_ += oniguruma() && options && pattern_[at_] == 'm' ? 's' : pattern_[at_];
    }
    // Characters after "(?" that are no option (<, =, !, >, P) belong to the group's kind.
    while (!options && at_ < pattern_.size() &&
           std::string_view("<=!>P").find(pattern_[at_]) != std::string_view::npos) {
      out_ += pattern_[at_++];
    }
  }

  void close_group() {
    out_ += pattern_[at_++];
    if (groups_.empty()) return;  // PCRE2 reports it
    atom_begin_ = groups_.back();
    groups_.pop_back();
  }

  void repeat() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) ++end;
    const std::string_view bounds = pattern_.substr(at_ + 1, end - at_ - 1);
    if (end == pattern_.size() || pattern_[end] != '}' || bounds.empty() || bounds == ",") {
      ++at_;
      return atom("\\{");
    }
    out_ += bounds[0] == ',' ? "{0" : "{";
    out_.append(bounds).push_back('}');
    at_ = end + 1;
    if (oniguruma() && at_ < pattern_.size() && pattern_[at_] == '+') {
      // Not possessive in Oniguruma: the repeat is repeated.
      out_.insert(atom_begin_, "(?:");
      out_ += ")+";
      ++at_;
    }
  }

  std::string_view pattern_;
  RegexDialect dialect_;
  std::string_view what_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_begin_ = 0;       // begin of the last atom in out_
  std::vector<size_t> groups_;  // begins of the open groups in out_
};

}  // namespace

std::string translate_regex(std::string_view pattern, RegexDialect dialect, std::string_view what) {
  return Translator(pattern, dialect, what).run();
}

}  // namespace klotski
