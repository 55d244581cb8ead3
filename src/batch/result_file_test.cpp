#include "batch/result_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/testing.h"

namespace klotski {
namespace {

using Writing = ResultFile::Writing;

class ResultFileTest : public testing::Test {
 protected:
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  (std::to_string(::getpid()) + "_result_file_test");
  std::filesystem::path path_ = folder_ / "out";

  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string content() { return read_text_file(path_, 1 << 20); }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
};

TEST_F(ResultFileTest, KeepsAnEarlierRunsLinesAsFarAsTheyAgree) {
  const std::string nul(10, '\0');
  for (const std::string& there : {std::string(), std::string("one\n"), std::string("one\ntw"),
                                   "one\n" + nul, std::string("one\nTWO\nthree\n"),
                                   std::string("one\ntwo\nand more\n"), std::string("zero\n")}) {
    write(there);
    {
      ResultFile file(path_, Writing::itself);
      file.put("one\n");
      file.put("two\n");
      file.settle();
      file.flush();
      EXPECT_EQ(content(), "one\ntwo\n");
      file.put("three\n");
      EXPECT_EQ(file.waiting_bytes(), 6u);
      file.flush();
      file.finish();
    }
    EXPECT_EQ(content(), "one\ntwo\nthree\n");
  }
}

TEST_F(ResultFileTest, AnOlderFileStaysUntilTheNewOneIsComplete) {
  write("old");
  ResultFile file(path_, Writing::beside);
  file.put("new\n");
  file.flush();
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(read_text_file(beside(path_), 100), "new\n");
  file.finish();
  EXPECT_EQ(content(), "new\n");
  EXPECT_FALSE(std::filesystem::exists(beside(path_)));
}

TEST_F(ResultFileTest, OnlyOneProcessWrites) {
  const ResultFile first(path_, Writing::itself);
  EXPECT_NE(refusal([&] { ResultFile(path_, Writing::itself); }).find("another process"),
            std::string::npos);
}

TEST_F(ResultFileTest, FailuresAreReported) {
  EXPECT_NE(refusal([&] { ResultFile(folder_ / "no" / "out", Writing::itself); }), "");
  EXPECT_NE(refusal([&] { ResultFile(folder_, Writing::itself); }), "");
  EXPECT_NE(refusal([&] { ResultFile("/dev/full", Writing::itself); }).find("No space left"),
            std::string::npos);
}

// A limit on the size of files makes a write stop half-way, as a full disk does.
TEST_F(ResultFileTest, AFlushThatStoppedHalfWayCanBeTriedAgain) {
  ResultFile output(path_, Writing::itself);
  output.put("0123456789\n");
  output.flush();
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 15;
  ::setrlimit(RLIMIT_FSIZE, &small);
  output.put("abcdefghij\n");
  const std::string message = refusal([&] { output.flush(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  EXPECT_NE(message.find("cannot be written"), std::string::npos);
  output.flush();
  EXPECT_EQ(content(), "0123456789\nabcdefghij\n");
}

}  // namespace
}  // namespace klotski
