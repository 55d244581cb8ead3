#pragma once

// The bytes of a GGUF file in their order, each checked to be there before it is used.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace klotski {

class GgufCursor {
 public:
  // Reads out.size() bytes of the file from byte `offset` on, which are there.
  using Read = std::function<void(uint64_t offset, std::span<std::byte> out)>;

  GgufCursor(Read read, uint64_t file_bytes, std::string_view what);

  // A number of this type; `thing` names it in errors.
  template <typename Number>
  Number number(std::string_view thing);
  // A length of 64 bits and as many bytes of valid UTF-8.
  std::string text(std::string_view thing, uint64_t most_bytes);
  // A number of things, at most `most`, of which each takes at least least_bytes of the file.
  uint64_t count(std::string_view thing, uint64_t least_bytes, uint64_t most);

  uint64_t position() const { return begin_ + at_; }
  // Bytes that the header can still have.
  uint64_t left() const { return end_ - position(); }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::string& what() const { return what_; }

 private:
  const std::byte* take(uint64_t bytes, std::string_view thing);

  Read read_;
  uint64_t file_bytes_;
  uint64_t end_;  // first byte that the header cannot have
  std::string what_;
  std::string buffer_;  // bytes of the file from begin_ on
  uint64_t begin_ = 0;
  size_t at_ = 0;  // next byte in buffer_
};

}  // namespace klotski
