#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "text/newer_unicode.h"
#include "text/utf8.h"

namespace klotski {

namespace {

constexpr size_t kMaxPatternBytes = 64 * 1024;
constexpr size_t kMaxCompiledBytes = 4 * 1024 * 1024;
// Steps of the matcher for one search. Long runs of white space legitimately take a step per byte.
constexpr uint32_t kLeastMatchLimit = 10'000'000;
constexpr size_t kMatchStepsPerByte = 16;
constexpr uint32_t kHeapLimitKiB = 256 * 1024;

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Regex::Compiled {
  std::string pattern;
  std::string what;
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool jit = false;
};

struct RegexMatches::Buffers {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
};

Regex::Regex(std::string_view pattern, RegexDialect dialect, std::string_view what)
    : compiled_(std::make_unique<Compiled>()) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorKind::bad_model, "{}: expected a pattern of at most {} bytes, found {}", what,
         kMaxPatternBytes, pattern.size());
  }
  compiled_->pattern = pattern;
  compiled_->what = what;
  const std::string translated = translate_regex(pattern, dialect, what);
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  const uint32_t anchors =
      dialect == RegexDialect::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
  int error = 0;
  PCRE2_SIZE error_at = 0;
  compiled_->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | anchors, &error, &error_at, context.get()));
  if (!compiled_->code) {
    fail(ErrorKind::bad_model, "{}: the pattern {} is not supported: {}", what, in_quotes(pattern),
         pcre_message(error));
  }
  size_t bytes = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_SIZE, &bytes);
  if (bytes > kMaxCompiledBytes) {
    fail(ErrorKind::bad_model, "{}: the pattern {} is too large: {} bytes compiled", what,
         in_quotes(pattern), bytes);
  }
  compiled_->jit = pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

RegexMatches::RegexMatches(const Regex& regex, std::string_view text)
    : compiled_(*regex.compiled_),
      replaced_(replace_newer_characters(text)),
      text_(replaced_ ? *replaced_ : text),
      buffers_(std::make_unique<Buffers>()) {
  buffers_->data.reset(pcre2_match_data_create_from_pattern(compiled_.code.get(), nullptr));
  buffers_->context.reset(pcre2_match_context_create(nullptr));
  if (!buffers_->data || !buffers_->context) throw std::bad_alloc();
  const size_t steps =
      std::clamp<size_t>(text.size() * kMatchStepsPerByte, kLeastMatchLimit, UINT32_MAX);
  pcre2_set_match_limit(buffers_->context.get(), static_cast<uint32_t>(steps));
  pcre2_set_depth_limit(buffers_->context.get(), static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(buffers_->context.get(), kHeapLimitKiB);
}

RegexMatches::~RegexMatches() = default;

bool RegexMatches::search() {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (compiled_.jit) {
    result = pcre2_jit_match(compiled_.code.get(), subject, text_.size(), from_, 0,
                             buffers_->data.get(), buffers_->context.get());
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its frames on the heap
    result = pcre2_match(compiled_.code.get(), subject, text_.size(), from_,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, buffers_->data.get(),
                         buffers_->context.get());
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    fail(ErrorKind::bad_model, "{}: the pattern {} exceeds the limits of a search: {}",
         compiled_.what, in_quotes(compiled_.pattern), pcre_message(result));
  }
  return true;
}

bool RegexMatches::next(Span* match) {
  while (from_ <= text_.size() && search()) {
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(buffers_->data.get());
    // \K can put the start of a match anywhere: spans must stay in order.
    const size_t end = std::max<size_t>(ends[1], from_);
    const Span found = {std::clamp<size_t>(ends[0], from_, end), end};
    if (found.begin == found.end && found.end == last_end_) {
      from_ += from_ < text_.size() ? utf8_bytes(text_[from_]) : 1;
      continue;
    }
    from_ = found.end;
    last_end_ = found.end;
    *match = found;
    return true;
  }
  return false;
}

}  // namespace klotski
