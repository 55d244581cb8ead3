#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "weights/testing.h"

// Helpers of the tests of this folder only.
namespace klotski::testing_synth {

using testing_files::ScratchFolder;

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline bool has_nothing(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder) == std::filesystem::directory_iterator();
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

}  // namespace klotski::testing_synth
