#pragma once

// A GGUF file: the bytes "GGUF", a version, counts, metadata (keys with values), a table of
// tensors, and after padding their data. All numbers are little-endian.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "weights/tensor_source.h"

namespace klotski {

inline constexpr std::string_view kGgufSuffix = ".gguf";
// Bytes before the data. Vocabularies of 260,000 tokens and their merges take some 15 MB.
inline constexpr uint64_t kMaxGgufHeaderBytes = 128u << 20;
inline constexpr uint64_t kMaxGgufElements = 1u << 23;  // elements of all arrays together
inline constexpr uint64_t kMaxGgufKeys = 1u << 16;
inline constexpr uint64_t kMaxGgufTensors = 1u << 20;  // of one file
inline constexpr size_t kMaxGgufRank = 4;
inline constexpr size_t kMaxGgufKeyBytes = 65'535;  // by the format
inline constexpr uint64_t kDefaultGgufAlignment = 32;
inline constexpr uint64_t kMaxGgufAlignment = 1u << 16;

// Whether a path is that of a GGUF file by its name, and not of a folder.
bool is_gguf_file(const std::filesystem::path& path);

struct GgufFile {
  uint32_t version = 0;
  Json metadata = Json::object();    // by key, for instance "general.architecture"
  std::vector<TensorEntry> tensors;  // in the order of the file; shapes outermost dimension first
};

// Readers of everything before the data. They refuse (bad_model) all that the format forbids and
// all that is ambiguous (keys or tensors twice, gaps, overlaps), arrays of arrays, types of tensors
// that this program does not know, big-endian files and versions other than 2 and 3. Nothing is
// allocated for a count that the file's bytes cannot hold. Errors begin with `what`, the name of
// the file.
GgufFile read_gguf(const File& file, std::string_view what);
GgufFile parse_gguf(std::span<const std::byte> file, std::string_view what);  // a whole file

// The place of a file among the shards of a model.
struct GgufSplit {
  int64_t number = 0;  // from 0 on
  int64_t count = 1;
  int64_t tensors = 0;  // tensors of all shards together; 0: not stated
};
GgufSplit gguf_split(const GgufFile& file, std::string_view what);

}  // namespace klotski
