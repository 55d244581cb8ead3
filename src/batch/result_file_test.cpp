#include "batch/result_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sys/resource.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/testing.h"

namespace klotski {
namespace {

class ResultFileTest : public testing::Test {
 protected:
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  (std::to_string(::getpid()) + "_result_file_test");
  std::filesystem::path input_path_ = folder_ / "in";
  std::filesystem::path path_ = folder_ / "out";

  void SetUp() override {
    std::filesystem::create_directory(folder_);
    std::ofstream(input_path_) << "input";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string content() { return read_text_file(path_, 1 << 20); }
};

TEST_F(ResultFileTest, AppendsToANewFileOnly) {
  const File input(input_path_);
  {
    ResultFile output(path_, false, input.descriptor());
    output.append("one\n");
    output.append("two\n");
    output.flush();
  }
  EXPECT_EQ(content(), "one\ntwo\n");
  EXPECT_NE(refusal([&] { ResultFile(path_, false, input.descriptor()); }).find("--overwrite"),
            std::string::npos);
  EXPECT_EQ(content(), "one\ntwo\n");
  ResultFile(path_, true, input.descriptor()).append("three\n");
  EXPECT_EQ(content(), "three\n");
}

TEST_F(ResultFileTest, TheInputIsNeverOverwritten) {
  const File input(input_path_);
  std::filesystem::create_symlink(input_path_, path_);
  EXPECT_NE(refusal([&] { ResultFile(path_, true, input.descriptor()); }).find("is the input"),
            std::string::npos);
  EXPECT_EQ(content(), "input");
}

TEST_F(ResultFileTest, FailuresAreReported) {
  const File input(input_path_);
  EXPECT_NE(refusal([&] { ResultFile(folder_ / "no" / "out", false, input.descriptor()); }), "");
  EXPECT_NE(refusal([&] { ResultFile(folder_, true, input.descriptor()); }), "");
  ResultFile full("/dev/full", false, input.descriptor());
  EXPECT_NE(refusal([&] { full.append("x\n"); }).find("No space left"), std::string::npos);
}

// A limit on the size of files makes a write stop half-way, as a full disk does.
TEST_F(ResultFileTest, HalfALineIsTakenBack) {
  const File input(input_path_);
  ResultFile output(path_, false, input.descriptor());
  output.append("0123456789\n");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 15;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refusal([&] { output.append("0123456789\n"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  EXPECT_NE(message.find("results before it are kept"), std::string::npos);
  EXPECT_EQ(content(), "0123456789\n");
}

}  // namespace
}  // namespace klotski
