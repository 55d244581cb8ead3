#pragma once

// GGUF files for tests, written piece by piece so that each piece can be wrong.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace klotski::testing_gguf {

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}
inline std::string with_length(const std::string& text) {
  return bytes_of<uint64_t>(text.size()) + text;
}

// Numbers of the types of values in files.
inline constexpr uint32_t kU8 = 0, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7,
                          kText = 8, kArray = 9, kU64 = 10, kF64 = 12;

inline std::string pair_of(const std::string& key, uint32_t type, const std::string& value) {
  return with_length(key) + bytes_of(type) + value;
}
inline std::string u32_pair(const std::string& key, uint32_t value) {
  return pair_of(key, kU32, bytes_of(value));
}
inline std::string u16_pair(const std::string& key, uint16_t value) {
  return pair_of(key, kU16, bytes_of(value));
}
inline std::string f32_pair(const std::string& key, float value) {
  return pair_of(key, kF32, bytes_of(value));
}
inline std::string bool_pair(const std::string& key, bool value) {
  return pair_of(key, kBool, std::string(1, value ? '\1' : '\0'));
}
inline std::string text_pair(const std::string& key, const std::string& value) {
  return pair_of(key, kText, with_length(value));
}
inline std::string array_pair(const std::string& key, uint32_t type, uint64_t count,
                              const std::string& elements) {
  return pair_of(key, kArray, bytes_of(type) + bytes_of(count) + elements);
}
inline std::string texts_pair(const std::string& key, const std::vector<std::string>& texts) {
  std::string elements;
  for (const std::string& text : texts) elements += with_length(text);
  return array_pair(key, kText, texts.size(), elements);
}

// A row of the table of tensors; dimensions as files have them, innermost first.
inline std::string tensor_of(const std::string& name, const std::vector<uint64_t>& dimensions,
                             uint32_t type, uint64_t offset) {
  std::string bytes = with_length(name) + bytes_of(static_cast<uint32_t>(dimensions.size()));
  for (const uint64_t dimension : dimensions) bytes += bytes_of(dimension);
  return bytes + bytes_of(type) + bytes_of(offset);
}

// A file made of its pieces.
struct Pieces {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> tensors;
  std::vector<std::string> pairs;
  uint64_t more_tensors = 0;  // added to the number of tensors that the file states
  uint64_t more_pairs = 0;
  uint64_t alignment = 32;  // of the data, as it is written
  std::string data;

  std::string header() const {
    std::string file = magic + bytes_of(version) +
                       bytes_of<uint64_t>(tensors.size() + more_tensors) +
                       bytes_of<uint64_t>(pairs.size() + more_pairs);
    for (const std::string& pair : pairs) file += pair;
    for (const std::string& tensor : tensors) file += tensor;
    return file;
  }
  std::string file() const {
    std::string file = header();
    if (!data.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }
  // Adds a tensor with its bytes, at the next multiple of the alignment.
  void add(const std::string& name, const Shape& shape, uint32_t type, const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensors.push_back(tensor_of(name, {shape.rbegin(), shape.rend()}, type, data.size()));
    data += bytes;
  }
};

}  // namespace klotski::testing_gguf
