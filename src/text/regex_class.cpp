#include "text/regex_class.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "text/utf8.h"

namespace klotski {

namespace {

constexpr std::string_view kSpaceMembers = R"(\x09-\x0d\x{85}\p{Z})";
constexpr std::string_view kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Rust's \w also holds the joiners.
constexpr std::string_view kRustWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
constexpr int kMaxClassDepth = 16;

struct NamedSet {
  std::string_view name;  // lower case, without separators
  std::string_view members;
};

constexpr std::array kNamedSets = {
    NamedSet{"letter", R"(\p{L})"},
    NamedSet{"uppercaseletter", R"(\p{Lu})"},
    NamedSet{"lowercaseletter", R"(\p{Ll})"},
    NamedSet{"titlecaseletter", R"(\p{Lt})"},
    NamedSet{"modifierletter", R"(\p{Lm})"},
    NamedSet{"otherletter", R"(\p{Lo})"},
    NamedSet{"mark", R"(\p{M})"},
    NamedSet{"nonspacingmark", R"(\p{Mn})"},
    NamedSet{"spacingmark", R"(\p{Mc})"},
    NamedSet{"enclosingmark", R"(\p{Me})"},
    NamedSet{"number", R"(\p{N})"},
    NamedSet{"decimalnumber", R"(\p{Nd})"},
    NamedSet{"letternumber", R"(\p{Nl})"},
    NamedSet{"othernumber", R"(\p{No})"},
    NamedSet{"punctuation", R"(\p{P})"},
    NamedSet{"connectorpunctuation", R"(\p{Pc})"},
    NamedSet{"dashpunctuation", R"(\p{Pd})"},
    NamedSet{"openpunctuation", R"(\p{Ps})"},
    NamedSet{"closepunctuation", R"(\p{Pe})"},
    NamedSet{"initialpunctuation", R"(\p{Pi})"},
    NamedSet{"finalpunctuation", R"(\p{Pf})"},
    NamedSet{"otherpunctuation", R"(\p{Po})"},
    NamedSet{"symbol", R"(\p{S})"},
    NamedSet{"mathsymbol", R"(\p{Sm})"},
    NamedSet{"currencysymbol", R"(\p{Sc})"},
    NamedSet{"modifiersymbol", R"(\p{Sk})"},
    NamedSet{"othersymbol", R"(\p{So})"},
    NamedSet{"separator", R"(\p{Z})"},
    NamedSet{"spaceseparator", R"(\p{Zs})"},
    NamedSet{"lineseparator", R"(\p{Zl})"},
    NamedSet{"paragraphseparator", R"(\p{Zp})"},
    NamedSet{"other", R"(\p{C})"},
    NamedSet{"control", R"(\p{Cc})"},
    NamedSet{"format", R"(\p{Cf})"},
    NamedSet{"unassigned", R"(\p{Cn})"},
    NamedSet{"privateuse", R"(\p{Co})"},
    NamedSet{"surrogate", R"(\p{Cs})"},
    NamedSet{"alpha", R"(\p{Alphabetic})"},
    NamedSet{"digit", R"(\p{Nd})"},
    NamedSet{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    NamedSet{"upper", R"(\p{Uppercase})"},
    NamedSet{"lower", R"(\p{Lowercase})"},
    NamedSet{"punct", R"(\p{P})"},
    NamedSet{"blank", R"(\x09\p{Zs})"},
    NamedSet{"space", kSpaceMembers},
    NamedSet{"whitespace", kSpaceMembers},
    NamedSet{"word", kWordMembers},
    NamedSet{"cntrl", R"(\p{Cc})"},
    NamedSet{"xdigit", "0-9A-Fa-f"},
    NamedSet{"ascii", R"(\x00-\x7f)"},
};

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == '_' || letter == ' ' || letter == '-') continue;
    plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(letter))));
  }
  return plain;
}

bool is_known_to_pcre(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &error_at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

bool is_hex(char letter) { return std::isxdigit(static_cast<unsigned char>(letter)) != 0; }

// One bracketed class while it is read: the union of plain members and of other one-character
// patterns, and the operands before each &&.
class ClassReader {
 public:
  ClassReader(std::string_view pattern, RegexDialect dialect, std::string_view what, int depth)
      : pattern_(pattern), dialect_(dialect), what_(what), depth_(depth) {
    if (depth > kMaxClassDepth) {
      fail(ErrorKind::bad_model, "{}: the pattern {} nests classes deeper than {}", what,
           in_quotes(pattern), kMaxClassDepth);
    }
  }

  std::string read(size_t* at) {
    at_ = *at + 1;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    if (peek() == ']') {  // literal in the first place
      members_ += "\\]";
      ++at_;
    }
    while (peek() != ']') read_item();
    ++at_;
    *at = at_;
    return finish(negated);
  }

 private:
  char peek(size_t ahead = 0) const {
    if (at_ + ahead >= pattern_.size()) {
      fail(ErrorKind::bad_model, "{}: the pattern {} has a class without its ]", what_,
           in_quotes(pattern_));
    }
    return pattern_[at_ + ahead];
  }

  void read_item() {
    if (peek() == '\\') return read_escape();
    if (peek() == '[') return peek(1) == ':' && read_posix() ? void() : read_nested();
    if (peek() == '&' && peek(1) == '&') {
      at_ += 2;
      operands_.push_back(take_union());
      return;
    }
    const size_t bytes = utf8_bytes(peek());
    members_.append(pattern_.substr(at_, bytes));
    at_ += bytes;
  }

  void read_escape() {
    ++at_;
    const char letter = peek();
    if (letter == 'p' || letter == 'P') {
      return add(read_property(pattern_, &at_, dialect_, what_));
    }
    const CharacterSet set = shorthand_set(letter, dialect_);
    if (!set.members.empty()) {
      ++at_;
      return add(set);
    }
    const std::string character = translate_character_escape(pattern_, &at_);
    if (!character.empty()) {
      members_ += character;
      return;
    }
    const size_t bytes = utf8_bytes(letter);
    members_.append("\\").append(pattern_.substr(at_, bytes));
    at_ += bytes;
  }

  bool read_posix() {
    const size_t end = pattern_.find(":]", at_ + 2);
    if (end == std::string_view::npos) return false;
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    for (const char letter : name) {
      if (!std::isalpha(static_cast<unsigned char>(letter))) return false;
    }
    CharacterSet set = property_set(name, dialect_);
    if (name == "punct") set.members += R"(\p{S})";
    if (negated) set.complement = !set.complement;
    at_ = end + 2;
    add(set);
    return true;
  }

  void read_nested() {
    ClassReader nested(pattern_, dialect_, what_, depth_ + 1);
    alternatives_.push_back(nested.read(&at_));
  }

  void add(const CharacterSet& set) {
    if (set.complement) {
      alternatives_.push_back(fmt::format("[^{}]", set.members));
    } else {
      members_ += set.members;
    }
    // A hyphen after a set is itself, not a range.
    if (peek() == '-' && peek(1) != ']') {
      members_ += "\\-";
      ++at_;
    }
  }

  // The union read so far as a pattern for one character.
  std::string take_union() {
    if (!members_.empty())
      alternatives_.insert(alternatives_.begin(), fmt::format("[{}]", members_));
    std::string joined;
    for (const std::string& alternative : alternatives_) {
      if (!joined.empty()) joined += '|';
      joined += alternative;
    }
    if (joined.empty()) joined = "(*FAIL)";
    if (alternatives_.size() > 1) joined = fmt::format("(?:{})", joined);
    members_.clear();
    alternatives_.clear();
    return joined;
  }

  std::string finish(bool negated) {
    if (operands_.empty() && alternatives_.empty() && !members_.empty()) {
      return fmt::format("[{}{}]", negated ? "^" : "", members_);
    }
    std::string set = take_union();
    std::string conditions;
    for (const std::string& operand : operands_) conditions += fmt::format("(?={})", operand);
    if (!conditions.empty()) set = fmt::format("(?:{}{})", conditions, set);
    return negated ? fmt::format("(?:(?!{})(?s:.))", set) : set;
  }

  std::string_view pattern_;
  RegexDialect dialect_;
  std::string_view what_;
  int depth_;
  size_t at_ = 0;
  std::string members_;
  std::vector<std::string> alternatives_;
  std::vector<std::string> operands_;
};

}  // namespace

CharacterSet shorthand_set(char letter, RegexDialect dialect) {
  const bool rust = dialect == RegexDialect::rust;
  switch (letter) {
    case 's':
      return {std::string(kSpaceMembers), false};
    case 'S':
      return {std::string(kSpaceMembers), true};
    case 'w':
      return {std::string(rust ? kRustWordMembers : kWordMembers), false};
    case 'W':
      return {std::string(rust ? kRustWordMembers : kWordMembers), true};
    case 'h':
      return rust ? CharacterSet{} : CharacterSet{"0-9A-Fa-f", false};
    case 'H':
      return rust ? CharacterSet{} : CharacterSet{"0-9A-Fa-f", true};
    default:
      return {};
  }
}

CharacterSet property_set(std::string_view name, RegexDialect dialect) {
  const std::string plain = plain_name(name);
  if (plain == "word" && dialect == RegexDialect::rust) return {std::string(kRustWordMembers)};
  if (plain == "assigned") return {R"(\p{Cn})", true};
  for (const NamedSet& set : kNamedSets) {
    if (set.name == plain) return {std::string(set.members), false};
  }
  // PCRE2 reads a bare script name as its script extensions; the dialects mean the script alone.
  const std::string script = fmt::format("\\p{{sc:{}}}", name);
  return {is_known_to_pcre(script) ? script : fmt::format("\\p{{{}}}", name), false};
}

CharacterSet read_property(std::string_view pattern, size_t* at, RegexDialect dialect,
                           std::string_view what) {
  const bool negated = pattern[*at] == 'P';
  size_t begin = *at + 1;
  const bool braced = begin < pattern.size() && pattern[begin] == '{';
  if (braced) ++begin;
  const size_t end = braced ? pattern.find('}', begin) : begin + 1;
  if (end == std::string_view::npos || end > pattern.size()) {
    fail(ErrorKind::bad_model, "{}: the pattern {} has an unfinished \\p", what,
         in_quotes(pattern));
  }
  std::string_view name = pattern.substr(begin, end - begin);
  const bool caret = name.starts_with('^');
  if (caret) name.remove_prefix(1);
  *at = braced ? end + 1 : end;
  CharacterSet set = property_set(name, dialect);
  if (negated != caret) set.complement = !set.complement;
  return set;
}

std::string translate_class(std::string_view pattern, size_t* at, RegexDialect dialect,
                            std::string_view what) {
  return ClassReader(pattern, dialect, what, 0).read(at);
}

std::string translate_character_escape(std::string_view pattern, size_t* at) {
  const char letter = pattern[*at];
  if (letter == 'v') {
    ++*at;
    return "\\x0b";
  }
  if (letter != 'u') return "";
  size_t begin = *at + 1;
  const bool braced = begin < pattern.size() && pattern[begin] == '{';
  if (braced) ++begin;
  size_t end = begin;
  while (end < pattern.size() && is_hex(pattern[end]) && (braced || end - begin < 4)) ++end;
  if (end == begin || (braced && (end >= pattern.size() || pattern[end] != '}'))) return "";
  *at = braced ? end + 1 : end;
  return fmt::format("\\x{{{}}}", pattern.substr(begin, end - begin));
}

}  // namespace klotski
