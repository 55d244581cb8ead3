#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

// Helpers of tests that write files.
namespace klotski::testing_files {

// A folder that goes away with its contents.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = ::testing::TempDir() + "klotski-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(pattern);
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Sets a variable, or removes it where value is null, until the guard dies.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    const char* previous = std::getenv(name);
    had_value_ = previous != nullptr;
    if (had_value_) previous_ = previous;
    set(value);
  }
  ~ScopedEnvironment() { set(had_value_ ? previous_.c_str() : nullptr); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void set(const char* value) { value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  bool had_value_ = false;
  std::string previous_;
};

inline std::string prefix_of(uint64_t header_bytes) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>((header_bytes >> (8 * i)) & 0xFF);
  return prefix;
}

inline std::string safetensors_text(const std::string& header, const std::string& data) {
  return prefix_of(header.size()) + header + data;
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << content;
  ASSERT_TRUE(out.good()) << path;
}

// A header one byte longer puts every tensor of a safetensors file at an odd offset.
inline void unalign_tensors(const std::filesystem::path& path) {
  std::string bytes = content_of(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes.insert(8 + header, " ");
  ++header;
  std::memcpy(bytes.data(), &header, sizeof(header));
  write_file(path, bytes);
}

inline bool has_nothing(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder) == std::filesystem::directory_iterator();
}

// The message of the bad-model error that `action` must throw, checked to be one line.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::bad_model) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

template <typename Action>
ErrorKind kind_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "expected an error";
  return ErrorKind::internal;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace klotski::testing_files
