#include "text/model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/word_models.h"

namespace klotski {

namespace {

void read_vocabulary(const JsonFields& fields, const std::string& what, Vocabulary& vocabulary) {
  const Json* table = fields.find("vocab");
  if (!table || !table->is_object() || table->empty()) {
    fields.refuse("vocab", "an object from tokens to ids that is not empty");
  }
  const std::string field = what + ": model.vocab";
  for (const auto& entry : table->items()) {
    if (!entry.value().is_number_integer()) {
      fail(ErrorKind::bad_model, "{}: token {}: expected an integer, found {}", field,
           in_quotes(entry.key()), entry.value().type_name());
    }
    vocabulary.add(entry.key(), entry.value().get<int64_t>(), field);
  }
}

TokenId required_token(const JsonFields& fields, std::string_view key, std::string_view fallback,
                       const Vocabulary& vocabulary) {
  const auto id = vocabulary.find(fields.string_or(key, fallback));
  if (!id) fields.refuse(key, "a token of the vocabulary");
  return *id;
}

// "left right", or ["left", "right"].
std::pair<std::string_view, std::string_view> read_pair(const Json& merge, size_t index,
                                                        const std::string& field) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  fail(ErrorKind::bad_model, "{}[{}]: expected two tokens, found {}", field, index,
       in_quotes(merge.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

TokenId merge_token(const Vocabulary& vocabulary, std::string_view token, size_t index,
                    const std::string& field) {
  const auto id = vocabulary.find(token);
  if (!id) {
    fail(ErrorKind::bad_model, "{}[{}]: the token {} is not in the vocabulary", field, index,
         in_quotes(token));
  }
  return *id;
}

BpeModel::MergeTable read_merges(const JsonFields& fields, const std::string& what,
                                 const Vocabulary& vocabulary, size_t prefix_bytes) {
  const Json* list = fields.find("merges");
  if (!list || !list->is_array()) fields.refuse("merges", "an array of pairs of tokens");
  const std::string field = what + ": model.merges";
  BpeModel::MergeTable merges;  // grows with the entries that pass: a claim is cheaper than a merge
  uint32_t rank = 0;
  std::string joined;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& merge = (*list)[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = read_pair(merge, i, field);
    joined.assign(left).append(right.substr(std::min(prefix_bytes, right.size())));
    const TokenId left_id = merge_token(vocabulary, left, i, field);
    const TokenId right_id = merge_token(vocabulary, right, i, field);
    merges[BpeModel::pair_key(left_id, right_id)] = {rank++,
                                                     merge_token(vocabulary, joined, i, field)};
  }
  return merges;
}

std::unique_ptr<TokenModel> parse_bpe(const JsonFields& fields, const std::string& what,
                                      Vocabulary& vocabulary) {
  read_vocabulary(fields, what, vocabulary);
  BpeOptions options;
  options.fuse_unknown = fields.boolean_or("fuse_unk", false);
  options.byte_fallback = fields.boolean_or("byte_fallback", false);
  options.whole_words_first = fields.boolean_or("ignore_merges", false);
  options.continuing_prefix = fields.string_or("continuing_subword_prefix", "");
  options.end_suffix = fields.string_or("end_of_word_suffix", "");
  if (fields.number_or("dropout", 0, 0, 1) != 0) {
    fields.refuse("dropout", "none: encoding must be repeatable");
  }
  if (fields.has("unk_token")) options.unknown = vocabulary.find(fields.string("unk_token"));
  auto merges = read_merges(fields, what, vocabulary, options.continuing_prefix.size());
  return std::make_unique<BpeModel>(vocabulary, std::move(merges), std::move(options));
}

// The value that Hugging Face's JSON reader makes of these digits: it divides (or multiplies) by a
// power of ten, which rounds twice. Scores that differ in the last bit decide ties.
double as_hugging_face_reads(double value) {
  char buffer[64];
  const auto written =
      std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t mark = shortest.find('e');  // "-1.0809e+01"
  if (mark == std::string_view::npos) return value;
  uint64_t digits = 0;
  int power = 0;
  std::from_chars(shortest.data() + mark + (shortest[mark + 1] == '+' ? 2 : 1), written.ptr, power);
  for (size_t i = 0; i < mark; ++i) {
    if (shortest[i] < '0' || shortest[i] > '9') continue;
    digits = digits * 10 + static_cast<uint64_t>(shortest[i] - '0');
    if (shortest.substr(0, i).find('.') != std::string_view::npos) --power;
  }
  const auto whole = static_cast<double>(digits);
  const double scaled = power < 0 ? whole / std::pow(10.0, -power) : whole * std::pow(10.0, power);
  return std::signbit(value) ? -scaled : scaled;
}

std::unique_ptr<TokenModel> parse_unigram(const JsonFields& fields, const std::string& what,
                                          Vocabulary& vocabulary) {
  const Json* list = fields.find("vocab");
  if (!list || !list->is_array() || list->empty()) {
    fields.refuse("vocab", "an array of [token, score] that is not empty");
  }
  std::vector<UnigramPiece> pieces;
  pieces.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      fail(ErrorKind::bad_model, "{}: model.vocab[{}]: expected [token, score]", what, i);
    }
    vocabulary.add(entry[0].get_ref<const std::string&>(), static_cast<int64_t>(i),
                   what + ": model.vocab");
    pieces.push_back(
        {static_cast<TokenId>(i), as_hugging_face_reads(entry[1].get<double>()), false});
  }
  UnigramOptions options;
  options.byte_fallback = fields.boolean_or("byte_fallback", false);
  const auto last = static_cast<int64_t>(list->size()) - 1;
  if (fields.has("unk_id")) {
    options.unknown = static_cast<TokenId>(fields.integer("unk_id", 0, last));
  }
  return std::make_unique<UnigramModel>(vocabulary, std::move(pieces), options);
}

std::unique_ptr<TokenModel> parse_wordpiece(const JsonFields& fields, const std::string& what,
                                            Vocabulary& vocabulary) {
  read_vocabulary(fields, what, vocabulary);
  WordPieceModel::Options options;
  options.unknown = required_token(fields, "unk_token", "[UNK]", vocabulary);
  options.continuing_prefix = fields.string_or("continuing_subword_prefix", "##");
  options.max_characters =
      static_cast<size_t>(fields.integer_or("max_input_chars_per_word", 100, 0, 10'000));
  return std::make_unique<WordPieceModel>(vocabulary, std::move(options));
}

// Older files leave the type out; the fields tell.
std::string model_type(const JsonFields& fields) {
  if (fields.has("type")) return fields.string("type");
  if (fields.has("merges")) return "BPE";
  const Json* vocabulary = fields.find("vocab");
  if (vocabulary && vocabulary->is_array()) return "Unigram";
  return fields.has("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

std::unique_ptr<TokenModel> parse_model(const JsonFields& fields, const std::string& what,
                                        Vocabulary& vocabulary) {
  const std::string type = model_type(fields);
  if (type == "BPE") return parse_bpe(fields, what, vocabulary);
  if (type == "Unigram") return parse_unigram(fields, what, vocabulary);
  if (type == "WordPiece") return parse_wordpiece(fields, what, vocabulary);
  if (type == "WordLevel") {
    read_vocabulary(fields, what, vocabulary);
    return std::make_unique<WordLevelModel>(
        vocabulary, required_token(fields, "unk_token", "<unk>", vocabulary));
  }
  fields.refuse("type", "BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace klotski
