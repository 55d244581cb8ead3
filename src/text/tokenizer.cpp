#include "text/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/folder.h"
#include "text/byte_level.h"
#include "text/gzip.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace klotski {

namespace {

// The largest real files have some 35 MB; reading JSON takes up to 20 times its size.
constexpr uint64_t kMaxFileBytes = 128 * kMiB;
constexpr uint64_t kMaxTextBytes = 1 * kGiB;  // offsets into text are 32-bit in the models

void check_text_size(uint64_t bytes) {
  if (bytes <= kMaxTextBytes) return;
  fail(ErrorKind::usage, "the text has {}, more than the {} that can be encoded at once",
       format_bytes(bytes), format_bytes(kMaxTextBytes));
}

// Text made valid, and where the spans of it then lie.
struct Repaired {
  std::string text;
  std::vector<Span> literal;
};

// Literal text stays literal: a span that begins or ends inside an invalid sequence takes all of
// it.
Repaired repair(std::string_view text, std::span<const Span> literal) {
  Repaired repaired;
  std::string& out = repaired.text;
  std::vector<Span>& spans = repaired.literal;
  spans.assign(literal.begin(), literal.end());
  size_t begun = 0, ended = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    const size_t end = at + next.bytes;
    for (; begun < spans.size() && literal[begun].begin < end; ++begun) {
      spans[begun].begin = out.size();
    }
    out.append(next.valid ? text.substr(at, next.bytes) : kReplacementText);
    for (; ended < spans.size() && literal[ended].end <= end; ++ended) {
      spans[ended].end = out.size();
    }
    at = end;
  }
  for (; begun < spans.size(); ++begun) spans[begun].begin = out.size();
  for (; ended < spans.size(); ++ended) spans[ended].end = out.size();
  return repaired;
}

// One encode call: text goes down the stations, tokens are gathered in `ids`.
class Encoding {
 public:
  explicit Encoding(const TokenizerParts& parts) : parts_(parts) {}

  void add_text(std::string_view text, std::span<const Span> literal) {
    for (const Segment& segment : parts_.added.split(text, Pass::raw, literal)) {
      const auto [begin, end] = segment.span;
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      while (!literal.empty() && literal.front().end <= begin) literal = literal.subspan(1);
      add_raw(text.substr(begin, end - begin), begin == 0,
              !literal.empty() && literal.front().begin < end);
    }
  }

  std::vector<TokenId> ids;

 private:
  using Pass = AddedTokens::Pass;

  // Normalising moves bytes, so a stretch that is literal in part counts as literal as a whole.
  void add_raw(std::string_view text, bool at_input_start, bool is_literal) {
    std::string normalized(text);
    if (parts_.normalizer) parts_.normalizer->apply(normalized);
    if (!parts_.added.has_tokens(Pass::normalized)) {
      return add_normalized(std::move(normalized), at_input_start);
    }
    const Span whole = {0, normalized.size()};
    for (const Segment& segment :
         parts_.added.split(normalized, Pass::normalized, std::span(&whole, is_literal ? 1 : 0))) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        add_normalized(normalized.substr(segment.span.begin, segment.span.end - segment.span.begin),
                       at_input_start && segment.span.begin == 0);
      }
    }
  }

  void add_normalized(std::string text, bool at_input_start) {
    if (text.empty()) return;
    Pieces pieces;
    pieces.spans = {{0, text.size()}};
    pieces.text = std::move(text);
    pieces.at_input_start = at_input_start;
    const size_t max_bytes = longest_rewritten(pieces.text.size());
    for (const auto& step : parts_.pretokenizer.steps) {
      step->apply(pieces);
      if (pieces.text.size() > max_bytes) {
        fail(ErrorKind::bad_model, "the pre-tokenizer makes the text longer than {}",
             format_bytes(max_bytes));
      }
    }
    for (const Span& span : pieces.spans) {
      add_piece(std::string_view(pieces.text).substr(span.begin, span.end - span.begin));
    }
  }

  void add_piece(std::string_view piece) {
    if (parts_.pretokenizer.spell_bytes) return add_word(piece);
    for (size_t begin = 0; begin < piece.size();) {
      const size_t end = parts_.model->safe_cut(piece, begin);
      add_word(piece.substr(begin, end - begin));
      begin = end;
    }
  }

  void add_word(std::string_view word) {
    const bool cached = word.size() <= WordCache::kMaxWordBytes;
    const uint64_t hash = cached ? key_.hash(word) : 0;
    if (cached && cache_.append(word, hash, ids)) return;
    check_text_size(word.size());  // rewriting may have made the text longer
    const size_t before = ids.size();
    if (parts_.pretokenizer.spell_bytes) {
      spelled_.clear();
      append_byte_level(spelled_, word);
      parts_.model->tokenize(spelled_, ids);
    } else {
      parts_.model->tokenize(word, ids);
    }
    if (cached) cache_.insert(word, hash, std::span(ids).subspan(before));
  }

  const TokenizerParts& parts_;
  const HashKey key_ = HashKey::of_process();
  WordCache cache_;
  std::string spelled_;
};

// The JSON file that describes a ranks file: NAME.json, else one in its folder with "ranks":
// "NAME...".
std::filesystem::path find_description(const std::filesystem::path& ranks) {
  std::filesystem::path same_name = ranks;
  if (std::filesystem::exists(same_name.replace_extension(".json"))) return same_name;
  const std::string quoted_name = fmt::format("\"{}\"", ranks.filename().native());
  std::vector<std::filesystem::path> candidates;
  for (const auto& entry : std::filesystem::directory_iterator(ranks.parent_path())) {
    if (entry.path().extension() != ".json" || !entry.is_regular_file()) continue;
    const std::string text =
        read_in_folder(ranks.parent_path(), entry.path().filename().native(), kMaxFileBytes);
    const bool describes =
        text.find("\"ranks\"") != std::string::npos && text.find(quoted_name) != std::string::npos;
    if (describes) candidates.push_back(entry.path());
  }
  if (candidates.empty()) {
    fail(ErrorKind::bad_model, "{}: expected a JSON file beside it that names it under \"ranks\"",
         path_in_quotes(ranks));
  }
  return *std::min_element(candidates.begin(), candidates.end());
}

std::filesystem::path find_in_folder(const std::filesystem::path& folder) {
  for (const std::string_view name : {"tokenizer.json", "tokenizer.model"}) {
    if (const auto found = find_name(folder, name)) return folder / *found;
  }
  std::vector<std::filesystem::path> ranks;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    const auto plain = path.extension() == ".gz" ? path.stem() : path.filename();
    if (plain.extension() == ".tiktoken") ranks.push_back(path);
  }
  if (ranks.size() > 1) {
    fail(ErrorKind::bad_model, "{}: found {} *.tiktoken files, expected one: name the file to use",
         path_in_quotes(folder), ranks.size());
  }
  if (ranks.empty()) {
    fail(ErrorKind::bad_model,
         "{}: expected tokenizer.json, tokenizer.model or one *.tiktoken, found none of them",
         path_in_quotes(folder));
  }
  return ranks[0];
}

std::shared_ptr<const TokenizerParts> load_parts(const std::filesystem::path& folder_or_file) {
  const bool is_folder = std::filesystem::is_directory(folder_or_file);
  const std::filesystem::path path = is_folder ? find_in_folder(folder_or_file) : folder_or_file;
  const std::string what = path_in_quotes(path);
  const std::string bytes =
      is_folder ? read_in_folder_or_gzip(folder_or_file, path.filename().native(), kMaxFileBytes)
                : read_text_or_gzip(path, kMaxFileBytes);
  const std::filesystem::path plain = path.extension() == ".gz" ? path.stem() : path.filename();
  if (plain.extension() == ".model") return parse_sentencepiece(bytes, what);
  if (plain.extension() == ".tiktoken") {
    const std::filesystem::path description =
        find_description(std::filesystem::absolute(path).parent_path() / plain);
    return parse_tiktoken(
        bytes,
        read_in_folder(description.parent_path(), description.filename().native(), kMaxFileBytes),
        what);
  }
  return parse_tokenizer_json(bytes, what);
}

}  // namespace

std::optional<std::string_view> TokenizerParts::decoded_text(TokenId id, bool skip_special) const {
  if (const AddedToken* token = added.find(id)) {
    if (skip_special && added.is_skipped(*token)) return std::nullopt;
    return token->spelled;
  }
  if (!vocabulary.has(id) || (skip_special && control.contains(id))) return std::nullopt;
  return vocabulary.text(id);
}

bool TokenizerParts::becomes_special(std::string_view text) const {
  using Pass = AddedTokens::Pass;
  if (!normalizer || !added.has_tokens(Pass::normalized)) return false;
  const Span whole = {0, text.size()};
  // All of the text is literal here: in the first pass only tokens that are not special cut it.
  for (const Segment& segment : added.split(text, Pass::raw, std::span(&whole, 1))) {
    if (segment.id >= 0) continue;
    std::string part(text.substr(segment.span.begin, segment.span.end - segment.span.begin));
    normalizer->apply(part);
    if (added.may_hold_special(part, Pass::normalized)) return true;
  }
  return false;
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder_or_file) {
  try {
    return Tokenizer(load_parts(folder_or_file));
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorKind::bad_model, "{}: {}", path_in_quotes(folder_or_file), error.code().message());
  }
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view what) {
  return Tokenizer(parse_tokenizer_json(json, std::string(what)));
}

Tokenizer Tokenizer::from_gguf(const Json& metadata, std::string_view what) {
  return Tokenizer(parse_gguf_tokenizer(metadata, std::string(what)));
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view bytes, std::string_view what) {
  return Tokenizer(parse_sentencepiece(bytes, std::string(what)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  check_text_size(text.size());
  Encoding encoding(*parts_);
  const Span whole = {0, SIZE_MAX};
  const auto literal = options.parse_special ? options.literal : std::span(&whole, 1);
  const PostProcessor& around = parts_->post_processor;
  if (options.add_special) encoding.ids = around.before;
  if (is_valid_utf8(text)) {
    encoding.add_text(text, literal);
  } else {
    const Repaired repaired = repair(text, literal);
    check_text_size(repaired.text.size());
    encoding.add_text(repaired.text, repaired.literal);
  }
  if (options.add_special) {
    encoding.ids.insert(encoding.ids.end(), around.after.begin(), around.after.end());
  }
  return std::move(encoding.ids);
}

std::vector<Span> Tokenizer::find_special(std::string_view text) const {
  using Pass = AddedTokens::Pass;
  const Span whole = {0, text.size()};
  std::vector<Span> found;
  if (!is_valid_utf8(text)) {
    std::string repaired;
    append_lossy_utf8(repaired, text);
    if (!find_special(repaired).empty()) found.push_back(whole);
    return found;
  }
  if (parts_->becomes_special(text)) return {whole};
  for (const auto pass : {Pass::raw, Pass::normalized}) {
    if (pass == Pass::normalized && parts_->normalizer) break;
    for (const Segment& segment : parts_->added.split(text, pass, {})) {
      if (segment.id >= 0 && is_special(segment.id)) found.push_back(segment.span);
    }
  }
  std::sort(found.begin(), found.end(), [](Span a, Span b) { return a.begin < b.begin; });
  for (size_t i = 1; i < found.size(); ++i) {  // the passes do not know of each other
    found[i].begin = std::max(found[i].begin, found[i - 1].end);
    found[i].end = std::max(found[i].end, found[i].begin);
  }
  return found;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  DecodeStream stream(parts_->decoder);
  std::string text;
  for (const TokenId id : ids) {
    const auto token = parts_->decoded_text(id, skip_special);
    if (token) text += stream.push(std::string(*token));
  }
  return text + stream.finish();
}

size_t Tokenizer::vocabulary_size() const {
  return std::max(parts_->vocabulary.end_id(), parts_->added.end_id());
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  return parts_->vocabulary.find(token);
}

std::optional<std::string_view> Tokenizer::text_of(TokenId id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  if (!parts_->vocabulary.has(id)) return std::nullopt;
  return parts_->vocabulary.text(id);
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedToken* added = parts_->added.find(id);
  return (added && added->special) || parts_->control.contains(id);
}

}  // namespace klotski
