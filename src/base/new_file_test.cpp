#include "base/new_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/testing.h"

namespace klotski {
namespace {

class NewFileTest : public testing::Test {
 protected:
  NewFileTest() { std::filesystem::create_directories(folder_); }
  ~NewFileTest() override { std::filesystem::remove_all(folder_); }

  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_new_file_test");
  std::filesystem::path path_ = folder_ / "file";
};

TEST_F(NewFileTest, AppearsOnlyWhenComplete) {
  std::ofstream(path_) << "old";
  {
    NewFile file(path_);
    file.write("new ");
    file.write("text");
    EXPECT_EQ(read_text_file(path_, 100), "old");
    file.commit();
  }
  EXPECT_EQ(read_text_file(path_, 100), "new text");
  EXPECT_EQ(files(), 1);
}

TEST_F(NewFileTest, NothingIsLeftWithoutCommit) {
  { NewFile(path_).write("half"); }
  EXPECT_EQ(files(), 0);
}

TEST_F(NewFileTest, RefusesWhatCannotBeReplaced) {
  EXPECT_NE(refusal([&] { NewFile file(folder_); }).find("regular file"), std::string::npos);
  EXPECT_NE(refusal([&] { NewFile file("/dev/null"); }).find("regular file"), std::string::npos);
  EXPECT_NE(refusal([&] { NewFile file(folder_ / "absent" / "file"); }).find("cannot be created"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
