#include "base/small_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

namespace klotski {
namespace {

using Ids = std::vector<int>;

TEST(IdList, AsTheKernelWritesIt) {
  EXPECT_EQ(parse_id_list(""), Ids{});
  EXPECT_EQ(parse_id_list("0"), Ids{0});
  EXPECT_EQ(parse_id_list("0-3,8,10-11"), (Ids{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_id_list("5-5"), Ids{5});
  EXPECT_EQ(parse_id_list("0-65535")->size(), 65536u);
}

TEST(IdList, OddOnesAreNone) {
  for (const char* text : {",",
                           "1,",
                           ",1",
                           "1,,2",
                           "-",
                           "1-",
                           "-1",
                           "3-1",
                           "2,1",
                           "1,1",
                           "0-4,4",
                           "a",
                           "0x1",
                           "1 ",
                           " 1",
                           "1\n",
                           "+1",
                           "65536",
                           "0-65536",
                           "18446744073709551616",
                           "0-18446744073709551615",
                           "1-2-3",
                           "0-31:2/4",
                           "1;2"}) {
    EXPECT_EQ(parse_id_list(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_id_list(std::string("1\0", 2)), std::nullopt);
}

TEST(IdList, AnyListReadsBack) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::set<int> chosen;
    const auto most = static_cast<int>(1 + random() % 40);
    for (int n = static_cast<int>(random() % 30); n > 0; --n) {
      chosen.insert(static_cast<int>(random() % static_cast<unsigned>(most)));
    }
    const Ids ids(chosen.begin(), chosen.end());
    ASSERT_EQ(parse_id_list(format_id_list(ids)), ids) << format_id_list(ids);
  }
  EXPECT_EQ(format_id_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(SmallFile, IsReadWholeOrNotAtAll) {
  const std::filesystem::path folder = ::testing::TempDir() + "/small" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "file") << text;
    return small_file(folder / "file");
  };
  EXPECT_EQ(read("text\n"), "text");
  EXPECT_EQ(read("two\nlines\n\n"), "two\nlines\n");
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read(std::string(65536, 'x')).size(), 65536u);
  EXPECT_EQ(read(std::string(65537, 'x')), "");
  EXPECT_EQ(small_file(folder / "absent"), "");
  EXPECT_EQ(small_file(folder), "");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(small_file(folder / "fifo"), "") << "and does not wait";
  EXPECT_NE(small_file("/proc/self/status"), "") << "whose size is said to be 0";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace klotski
