#include "text/decode_steps.h"

#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace klotski {

namespace {

// Every step's state is plain data, so a copy of the untouched prototype starts a new stream.
template <typename Derived>
class CopyableStep : public DecodeStep {
 public:
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

class ByteLevelStep : public CopyableStep<ByteLevelStep> {
 public:
  void push(std::string token, Tokens& out) override {
    bytes_ += from_byte_level(token).value_or(token);
    const size_t whole = bytes_.size() - unfinished_utf8_tail(bytes_);
    emit(std::string_view(bytes_).substr(0, whole), out);
    bytes_.erase(0, whole);
  }
  void finish(Tokens& out) override { emit(bytes_, out); }

 private:
  static void emit(std::string_view bytes, Tokens& out) {
    out.emplace_back();
    append_lossy_utf8(out.back(), bytes);
  }
  std::string bytes_;
};

class DropByteOrderMarkStep : public CopyableStep<DropByteOrderMarkStep> {
 public:
  void push(std::string token, Tokens& out) override {
    if (at_start_ && token.starts_with(kByteOrderMark)) token.erase(0, kByteOrderMark.size());
    at_start_ = at_start_ && token.empty();
    out.push_back(std::move(token));
  }

 private:
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  bool at_start_ = true;
};

class ByteFallbackStep : public CopyableStep<ByteFallbackStep> {
 public:
  void push(std::string token, Tokens& out) override {
    const int byte = byte_of_token(token);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(Tokens& out) override {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      out.push_back(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out.emplace_back(kReplacementText);
    }
    run_.clear();
  }

 private:
  std::string run_;
};

class JoiningStep : public CopyableStep<JoiningStep> {
 public:
  void push(std::string token, Tokens& out) override {
    std::string text = first_ ? "" : " ";
    out.push_back(std::move(text.append(token)));
    first_ = false;
  }

 private:
  bool first_ = true;
};

class GatherStep : public CopyableStep<GatherStep> {
 public:
  void push(std::string token, Tokens&) override { gathered_ += token; }
  void finish(Tokens& out) override { out.push_back(std::move(gathered_)); }

 private:
  std::string gathered_;
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t copied = 0;
  for (size_t at = text.find(from); !from.empty() && at != std::string_view::npos;) {
    out.append(text.substr(copied, at - copied)).append(to);
    copied = at + from.size();
    at = text.find(from, copied);
  }
  return out.append(text.substr(copied));
}

class SuffixStep : public CopyableStep<SuffixStep> {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  void push(std::string token, Tokens& out) override {
    if (held_) out.push_back(replace_all(token_, suffix_, " "));
    token_ = std::move(token);
    held_ = true;
  }
  void finish(Tokens& out) override {
    if (held_) out.push_back(replace_all(token_, suffix_, ""));
  }

 private:
  std::string suffix_;
  std::string token_;  // may be the last, which is treated differently
  bool held_ = false;
};

// Undoes the spaces that word-by-word output leaves before punctuation and in contractions.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& rule : kRules) text = replace_all(text, rule.first, rule.second);
  return text;
}

class WordPieceStep : public CopyableStep<WordPieceStep> {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void push(std::string token, Tokens& out) override {
    if (!first_ && token.starts_with(prefix_)) {
      token.erase(0, prefix_.size());
    } else if (!first_) {
      token.insert(token.begin(), ' ');
    }
    first_ = false;
    out.push_back(cleanup_ ? clean_up(std::move(token)) : std::move(token));
  }

 private:
  std::string prefix_;
  bool cleanup_;
  bool first_ = true;
};

class MetaspaceStep : public CopyableStep<MetaspaceStep> {
 public:
  MetaspaceStep(std::string mark, bool drop_first) : mark_(std::move(mark)), drop_(drop_first) {}
  void push(std::string token, Tokens& out) override {
    out.push_back(replace_all(token, mark_, drop_ ? "" : " "));
    drop_ = false;
  }

 private:
  std::string mark_;
  bool drop_;
};

class StripStep : public CopyableStep<StripStep> {
 public:
  explicit StripStep(StripOptions options)
      : options_(std::move(options)), start_left_(options_.start) {}

  void push(std::string token, Tokens& out) override {
    out.emplace_back();
    strip(token, out.back());
    if (options_.across_tokens) return;
    held_ = 0;  // characters held back at a token's end are dropped
    start_left_ = options_.start;
  }

 private:
  void strip(std::string_view token, std::string& out) {
    while (!token.empty()) {
      const std::string_view character = token.substr(0, utf8_bytes(token[0]));
      token.remove_prefix(character.size());
      const bool matches = character == options_.content;
      if (matches && start_left_ > 0) {
        --start_left_;
        continue;
      }
      start_left_ = 0;
      if (matches && held_ < options_.stop) {
        ++held_;
        continue;
      }
      if (!matches) {
        for (; held_ > 0; --held_) out += options_.content;
      }
      out += character;
    }
  }

  StripOptions options_;
  size_t start_left_;  // still to be cut off at the start
  size_t held_ = 0;    // possibly at the end: cut off unless more follows
};

class ReplaceStep : public CopyableStep<ReplaceStep> {
 public:
  ReplaceStep(std::shared_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void push(std::string token, Tokens& out) override {
    // A few steps that each double a letter would fill any memory.
    constexpr size_t kMaxBytes = 32 * kMiB;
    out.push_back(pattern_->replaced(token, content_, kMaxBytes));
    if (out.back().size() > kMaxBytes) {
      fail(ErrorKind::bad_model, "the decoder's Replace makes a text longer than {}",
           format_bytes(kMaxBytes));
    }
  }

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
};

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_value(token[3]), low = hex_value(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::unique_ptr<DecodeStep> make_drop_byte_order_mark_step() {
  return std::make_unique<DropByteOrderMarkStep>();
}

std::unique_ptr<DecodeStep> make_byte_level_step() { return std::make_unique<ByteLevelStep>(); }

std::unique_ptr<DecodeStep> make_byte_fallback_step() {
  return std::make_unique<ByteFallbackStep>();
}

std::unique_ptr<DecodeStep> make_joining_step() { return std::make_unique<JoiningStep>(); }

std::unique_ptr<DecodeStep> make_gather_step() { return std::make_unique<GatherStep>(); }

std::unique_ptr<DecodeStep> make_suffix_step(std::string suffix) {
  return std::make_unique<SuffixStep>(std::move(suffix));
}

std::unique_ptr<DecodeStep> make_wordpiece_step(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceStep>(std::move(prefix), cleanup);
}

std::unique_ptr<DecodeStep> make_metaspace_step(std::string mark, bool drop_first) {
  return std::make_unique<MetaspaceStep>(std::move(mark), drop_first);
}

std::unique_ptr<DecodeStep> make_strip_step(StripOptions options) {
  return std::make_unique<StripStep>(std::move(options));
}

TokenStep make_replace_step(Pattern pattern, std::string content) {
  const bool single_character = pattern.is_single_character();
  return {std::make_unique<ReplaceStep>(std::make_shared<Pattern>(std::move(pattern)),
                                        std::move(content)),
          single_character};
}

}  // namespace klotski
