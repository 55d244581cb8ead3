#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"

namespace klotski {

// The bytes of an input from front to back.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills the beginning of `out` and returns how many bytes; 0 at the end. Refuses (usage) a
  // compressed input that is damaged or cut short.
  virtual size_t read(std::span<char> out) = 0;
  virtual void rewind() = 0;
};

// The file's bytes, unpacked where its first bytes say that it is gzip or Zstandard, whatever its
// name is. The file must live longer. Refuses (usage) Zstandard where this program was built
// without it.
std::unique_ptr<ByteSource> bytes_of(const File& file);

// The file, or a copy of standard input where the path is "-", since inputs are read twice. Refuses
// (usage) what cannot be opened.
File open_input(const std::filesystem::path& path);

}  // namespace klotski
