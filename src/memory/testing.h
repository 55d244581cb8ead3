#pragma once

// Files with random content for the tests of this folder.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "memory/direct_file.h"

namespace klotski::testing {

inline std::vector<std::byte> random_bytes(uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size + sizeof(uint64_t));
  for (uint64_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t value = random();
    std::memcpy(bytes.data() + i, &value, sizeof value);
  }
  bytes.resize(size);
  return bytes;
}

// A file with random content, which exists as long as this does.
class RandomFile {
 public:
  RandomFile(const std::filesystem::path& folder, uint64_t size, uint64_t seed)
      : path_(folder / ("klotski-memory-test-" + std::to_string(::getpid()) + "-" +
                        std::to_string(counter()++))),
        content_(random_bytes(size, seed)) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(content_.data()),
               static_cast<std::streamsize>(content_.size()));
  }
  ~RandomFile() { std::filesystem::remove(path_); }
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::byte>& content() const { return content_; }
  DirectFile open() const { return DirectFile(std::make_shared<const File>(path_)); }

 private:
  static std::atomic<int>& counter() {
    static std::atomic<int> value{0};
    return value;
  }
  std::filesystem::path path_;
  std::vector<std::byte> content_;
};

// A folder on a disk and, where there is one, a folder in memory.
inline std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> all{::testing::TempDir()};
  if (::access("/dev/shm", W_OK) == 0) all.emplace_back("/dev/shm");
  return all;
}

}  // namespace klotski::testing
