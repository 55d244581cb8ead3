#include "text/decode_steps.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

namespace klotski {

namespace {

using Type = SentencePieceFile::Type;

struct DecodeRules {
  const Vocabulary* vocabulary = nullptr;
  std::vector<Type> types;  // types by id
  std::string unknown_surface;
  bool strip_leading_space = true;
  bool strip_all_leading_spaces = true;
};

class SentencePieceStep : public DecodeStep {
 public:
  explicit SentencePieceStep(std::shared_ptr<const DecodeRules> rules) : rules_(std::move(rules)) {}

  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<SentencePieceStep>(rules_);
  }

  void push(std::string token, Tokens& out) override {
    const Type type = type_of(token);
    if (type == Type::byte) {
      run_.push_back(static_cast<char>(byte_of_token(token)));
      emit_bytes(run_.size() - unfinished_utf8_tail(run_), out);
      return;
    }
    emit_bytes(run_.size(), out);
    if (type == Type::control) return;
    if (leading_space_seen_ || text_seen_) at_start_ = false;
    leading_space_seen_ = false;
    if (type == Type::unknown) return emit(rules_->unknown_surface, out);
    std::string_view piece = token;
    if (at_start_ && rules_->strip_leading_space && piece.starts_with(kSpaceMark)) {
      piece.remove_prefix(kSpaceMark.size());
      leading_space_seen_ = !rules_->strip_all_leading_spaces;
    }
    emit(spaced(piece), out);
  }

  void finish(Tokens& out) override { emit_bytes(run_.size(), out); }

 private:
  Type type_of(std::string_view token) const {
    const auto id = rules_->vocabulary->find(token);
    return id ? rules_->types[static_cast<size_t>(*id)] : Type::normal;
  }

  static std::string spaced(std::string_view piece) {
    std::string text;
    while (!piece.empty()) {
      const size_t mark = piece.find(kSpaceMark);
      text += piece.substr(0, mark);
      if (mark == std::string_view::npos) break;
      text += ' ';
      piece.remove_prefix(mark + kSpaceMark.size());
    }
    return text;
  }

  // The first `count` bytes of the run; every byte outside a valid character becomes U+FFFD.
  void emit_bytes(size_t count, Tokens& out) {
    std::string text;
    const std::string_view run = run_;
    for (size_t at = 0; at < count;) {
      const Utf8Char next = decode_utf8(run, at);
      text += next.valid ? run.substr(at, next.bytes) : kReplacementText;
      at += next.valid ? next.bytes : 1;
    }
    run_.erase(0, count);
    emit(text, out);
  }

  void emit(std::string text, Tokens& out) {
    text_seen_ |= !text.empty();
    if (!text.empty()) out.push_back(std::move(text));
  }

  std::shared_ptr<const DecodeRules> rules_;
  std::string run_;  // bytes of byte tokens that may still become part of a character
  bool at_start_ = true;
  bool text_seen_ = false;
  bool leading_space_seen_ = false;
};

}  // namespace

Decoder make_sentencepiece_decoder(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  auto rules = std::make_shared<DecodeRules>();
  rules->vocabulary = &vocabulary;
  for (const auto& piece : file.pieces) rules->types.push_back(piece.type);
  rules->unknown_surface = file.unknown_surface;
  rules->strip_leading_space = file.add_dummy_prefix || file.remove_extra_whitespaces;
  rules->strip_all_leading_spaces = file.remove_extra_whitespaces;
  Decoder::Steps steps;
  steps.push_back(std::make_unique<SentencePieceStep>(std::move(rules)));
  return Decoder(std::move(steps));
}

}  // namespace klotski
