#include "batch/input_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "batch/zstandard.h"

namespace klotski {
namespace {

class InputFileTest : public testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) /
                                (std::to_string(::getpid()) + "_input_file_test.jsonl");

  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  std::vector<std::string> lines(uint64_t max_line_bytes = kMaxLineBytes) {
    InputFile input(path_, max_line_bytes);
    std::vector<std::string> result;
    for (InputLine line; input.next(line);) {
      result.push_back(fmt::format("{}@{}:{}", line.number, line.offset,
                                   line.too_long ? "too long" : line.text));
    }
    return result;
  }
  std::string refusal() {
    try {
      InputFile input(path_);
      measure_rows(input);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  }
};

using Lines = std::vector<std::string>;

TEST_F(InputFileTest, LineEndsBlankLinesAndByteOrderMark) {
  write("\xEF\xBB\xBF{1}\r\n\n  \t\r\n{2}\n{3}");
  EXPECT_EQ(lines(), (Lines{"1@0:{1}", "4@14:{2}", "5@18:{3}"}));
  write("");
  EXPECT_EQ(lines(), Lines{});
  write("\n\n");
  EXPECT_EQ(lines(), Lines{});
  write("\r");
  EXPECT_EQ(lines(), Lines{});
}

TEST_F(InputFileTest, LongLinesAreHandedOutAsSuch) {
  write("abcde\nabcdef\nab\n");
  EXPECT_EQ(lines(5), (Lines{"1@0:abcde", "2@6:too long", "3@13:ab"}));
  const std::string longer(3 << 20, 'x');
  write("ab\n" + longer + "\ncd\n" + longer);
  EXPECT_EQ(lines(1 << 20),
            (Lines{"1@0:ab", "2@3:too long", "3@3145732:cd", "4@3145735:too long"}));
}

TEST_F(InputFileTest, LinesOfAllLengthsComeBack) {
  std::mt19937 random(1);
  std::string bytes;
  Lines expected;
  for (int i = 1; i <= 300; ++i) {
    const std::string text(1 + random() % (i % 50 == 0 ? 700000 : 2000), 'a' + char(i % 26));
    expected.push_back(fmt::format("{}@{}:{}", i, bytes.size(), text));
    bytes += text + "\n";
  }
  write(bytes);
  EXPECT_TRUE(lines() == expected);
}

TEST_F(InputFileTest, CountsRowsAndRefusesEqualIds) {
  write("{\"custom_id\":\"a\"}\n\n{\"custom_id\":\"b\"}\nbad\n{}\n{}\n{\"custom_id\":\"\"}");
  InputFile input(path_);
  EXPECT_EQ(measure_rows(input).rows, 6);
  InputLine first;
  EXPECT_TRUE(input.next(first));
  EXPECT_EQ(first.number, 1) << "ready to be read again";

  write("{\"custom_id\":\"a\"}\n\n{\"custom_id\":\"b\"}\n{\"custom_id\": \"\\u0061\"}\n");
  EXPECT_NE(refusal().find("'a' is on lines 1 and 4"), std::string::npos) << refusal();
}

TEST_F(InputFileTest, RowsAreNumberedWithoutBlankLinesAndHashed) {
  write("{1}\n\n{2}\n");
  InputFile input(path_);
  const std::string hash = measure_rows(input).hash;
  for (int64_t row = 0; row < 2; ++row) {
    InputLine line;
    ASSERT_TRUE(input.next(line));
    EXPECT_EQ(line.row, row);
  }
  const auto hash_of = [&](const std::string& bytes) {
    write(bytes);
    InputFile other(path_);
    return measure_rows(other).hash;
  };
  EXPECT_EQ(hash_of("{1}\r\n\n{2}"), hash);
  EXPECT_NE(hash_of("{1}\n{2}\n"), hash) << "lines name results";
  EXPECT_NE(hash_of("{1}\n\n{3}\n"), hash);
}

// Writes with the tools that users have.
TEST_F(InputFileTest, CompressedInputsGiveTheSameLines) {
  std::string bytes;
  for (int i = 0; i < 30000; ++i) bytes += fmt::format("{{\"row\":{}}}\n", i * 7919);
  write(bytes + bytes);
  const Lines expected = lines();
  const std::string packed = path_.string() + ".packed";
  const auto pack = [&](const std::string& tool) {
    return std::system(
               fmt::format("{0} -c '{1}' > '{2}' && {0} -c '{1}' >> '{2}' && mv '{2}' '{1}'", tool,
                           path_.string(), packed)
                   .c_str()) == 0;
  };
  for (const std::string tool : {"gzip", "zstd -q"}) {
    write(bytes);
    if (tool != "gzip" && (!have_zstandard() || std::system("zstd --version > /dev/null") != 0)) {
      GTEST_SKIP() << "no Zstandard here";
    }
    ASSERT_TRUE(pack(tool));  // twice the same text, in two members or frames
    const std::string whole = read_text_file(path_, 1 << 24);
    EXPECT_TRUE(lines() == expected) << tool;
    InputFile input(path_);
    EXPECT_EQ(measure_rows(input).rows, 60000);
    EXPECT_EQ(measure_rows(input).rows, 60000) << "rewound";
    for (const size_t size : {size_t{5}, whole.size() / 3, whole.size() - 1}) {
      write(whole.substr(0, size));
      EXPECT_NE(refusal().find("damaged or incomplete"), std::string::npos) << tool << size;
    }
    std::string damaged = whole;
    damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 0x55);
    write(damaged);
    EXPECT_NE(refusal(), "") << tool;
  }
}

TEST_F(InputFileTest, WhatIsNoFileIsRefused) {
  std::filesystem::remove(path_);
  EXPECT_NE(refusal().find("cannot be opened"), std::string::npos);
}

}  // namespace
}  // namespace klotski
