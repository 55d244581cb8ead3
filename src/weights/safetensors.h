#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "weights/tensor_source.h"

namespace klotski {

// A safetensors file: an 8-byte little-endian header length, a JSON header, data.

inline constexpr uint64_t kSafetensorsPrefixBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the reference reader's limit
inline constexpr size_t kMaxTensorRank = 16;
inline constexpr size_t kMaxTensorNameBytes = 4096;
inline constexpr size_t kMaxMetadataKeys = 65'536;  // real files have a few hundred at most

// Readers of safetensors headers. They refuse everything the format forbids and everything
// ambiguous (duplicate keys, unknown fields, gaps, overlaps) before they hand out an entry. Errors
// begin with `what`, the name of the file. Entries come in the order of the header.

// The header length from the first bytes of a file, checked against the file's size.
uint64_t parse_safetensors_prefix(std::span<const std::byte> prefix, uint64_t file_bytes,
                                  std::string_view what);

// `header` is exactly the JSON header. Uses at most about four times its size of memory.
std::vector<TensorEntry> parse_safetensors_header(std::string_view header, uint64_t file_bytes,
                                                  std::string_view what);

// A whole file in memory.
std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> file, std::string_view what);

// Reads the prefix and the header, not the data. `what` is the name for messages.
std::vector<TensorEntry> read_safetensors_header(const File& file, std::string_view what);
std::vector<TensorEntry> read_safetensors_header(const File& file);

}  // namespace klotski
