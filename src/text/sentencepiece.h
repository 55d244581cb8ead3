#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace klotski {

struct TokenizerParts;

// The parts of a SentencePiece model file that tokenizing needs. Names and numbers are those of the
// public sentencepiece_model.proto.
struct SentencePieceFile {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  enum class ModelType { unigram = 1, bpe = 2, word = 3, character = 4 };

  std::vector<Piece> pieces;  // the index is the token id
  ModelType model_type = ModelType::unigram;
  bool byte_fallback = false;
  bool unused_pads = false;  // unused pieces of BPE fill the vocabulary up: no text becomes one
  bool space_as_suffix = false;
  int32_t bos_id = 1;
  std::string unknown_surface = " \u2047 ";  // text of an unknown token
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// The character that stands for a space in its pieces.
inline constexpr std::string_view kSpaceMark = "\u2581";

// Checks everything: at most 2^24 pieces, texts that are UTF-8, finite scores, known types.
SentencePieceFile read_sentencepiece(std::string_view bytes, const std::string& what);

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const SentencePieceFile& file,
                                                          const std::string& what);

// Adds vocabulary, model and normalizer to the parts of a tokenizer, and the user-defined symbols
// to its added tokens.
void add_sentencepieces(const SentencePieceFile& file, const std::string& what,
                        TokenizerParts& parts);

// Refers to `vocabulary`, which must outlive it.
Decoder make_sentencepiece_decoder(const SentencePieceFile& file, const Vocabulary& vocabulary);

}  // namespace klotski
