#include <cmath>

#include "base/error.h"
#include "text/protobuf.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

namespace klotski {

namespace {

SentencePieceFile::Piece read_piece(std::string_view bytes, const std::string& what) {
  SentencePieceFile::Piece piece;
  ProtobufReader reader(bytes, what);
  while (reader.next()) {
    switch (reader.field()) {
      case 1:
        piece.text = reader.bytes();
        break;
      case 2:
        piece.score = reader.float32();
        break;
      case 3: {
        const uint64_t type = reader.varint();
        if (type < 1 || type > 6) {
          fail(ErrorKind::bad_model, "{}: expected a piece type from 1 to 6, found {}", what, type);
        }
        piece.type = static_cast<SentencePieceFile::Type>(type);
        break;
      }
      default:
        break;
    }
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text) || !std::isfinite(piece.score)) {
    fail(ErrorKind::bad_model, "{}: expected a text and a finite score, found {} and {}", what,
         in_quotes(piece.text), piece.score);
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& what, SentencePieceFile& file) {
  ProtobufReader reader(bytes, what);
  while (reader.next()) {
    switch (reader.field()) {
      case 3: {
        const uint64_t type = reader.varint();
        if (type != 1 && type != 2) {
          fail(ErrorKind::bad_model, "{}: expected a Unigram (1) or BPE (2) model, found type {}",
               what, type);
        }
        file.model_type = static_cast<SentencePieceFile::ModelType>(type);
        break;
      }
      case 24:
        file.space_as_suffix = reader.boolean();
        break;
      case 35:
        file.byte_fallback = reader.boolean();
        break;
      case 41:
        file.bos_id = reader.int32();
        break;
      case 44:
        file.unknown_surface = reader.bytes();
        break;
      default:
        break;
    }
  }
  if (!is_valid_utf8(file.unknown_surface)) {
    fail(ErrorKind::bad_model, "{}: unk_surface is not valid UTF-8", what);
  }
}

void read_normalizer(std::string_view bytes, const std::string& what, SentencePieceFile& file) {
  ProtobufReader reader(bytes, what);
  while (reader.next()) {
    switch (reader.field()) {
      case 2:
        file.charsmap = reader.bytes();
        break;
      case 3:
        file.add_dummy_prefix = reader.boolean();
        break;
      case 4:
        file.remove_extra_whitespaces = reader.boolean();
        break;
      case 5:
        file.escape_whitespaces = reader.boolean();
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceFile read_sentencepiece(std::string_view bytes, const std::string& what) {
  SentencePieceFile file;
  ProtobufReader reader(bytes, what);
  while (reader.next()) {
    if (reader.field() == 1) {
      if (file.pieces.size() >= static_cast<size_t>(kMaxTokenIds)) {
        fail(ErrorKind::bad_model, "{}: more than {} pieces", what, kMaxTokenIds);
      }
      file.pieces.push_back(
          read_piece(reader.bytes(), fmt::format("{}: piece {}", what, file.pieces.size())));
    } else if (reader.field() == 2) {
      read_trainer(reader.bytes(), what + ": trainer_spec", file);
    } else if (reader.field() == 3) {
      read_normalizer(reader.bytes(), what + ": normalizer_spec", file);
    }
  }
  if (file.pieces.empty()) fail(ErrorKind::bad_model, "{}: no pieces", what);
  return file;
}

}  // namespace klotski
