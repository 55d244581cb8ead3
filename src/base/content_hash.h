#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace klotski {

// A 128-bit hash of texts in their order, to notice that a file is another one. It is the same on
// every machine. It is no protection against somebody who makes two files with one hash.
class ContentHash {
 public:
  void add(std::string_view text);
  void add(uint64_t number);
  std::string text() const;  // 32 hexadecimal digits

 private:
  std::array<uint64_t, 2> lanes_{0x243F6A8885A308D3u, 0x13198A2E03707344u};
};

}  // namespace klotski
