#include "base/new_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/testing.h"
#include "base/write_calls.h"

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

// Somebody who may write to the folder puts a link where the file is going to be written.
class LinkPutThere : public WriteCalls {
 public:
  explicit LinkPutThere(std::filesystem::path target) : target_(std::move(target)) {}
  int open(const char* path, int flags, mode_t mode) override {
    names.insert(path);
    if (puts_link) std::filesystem::create_symlink(target_, path);
    return WriteCalls::open(path, flags, mode);
  }

  std::set<std::string> names;
  bool puts_link = true;

 private:
  std::filesystem::path target_;
};

TEST_F(NewFileTest, NeitherFollowsALinkNorHasANameThatCanBeForeseen) {
  std::ofstream(folder_ / "victim") << "kept";
  LinkPutThere calls(folder_ / "victim");
  const ScopedWriteCalls scope(calls);
  EXPECT_NE(refusal([&] { NewFile file(path_); }).find("cannot be created"), std::string::npos);
  EXPECT_EQ(read_text_file(folder_ / "victim", 100), "kept");
  calls.puts_link = false;
  for (int i = 0; i < 10; ++i) NewFile(path_).write("x");
  EXPECT_EQ(calls.names.size(), 11u);
}

TEST_F(NewFileTest, RefusesWhatCannotBeReplaced) {
  EXPECT_NE(refusal([&] { NewFile file(folder_); }).find("regular file"), std::string::npos);
  EXPECT_NE(refusal([&] { NewFile file("/dev/null"); }).find("regular file"), std::string::npos);
  EXPECT_NE(refusal([&] { NewFile file(folder_ / "absent" / "file"); }).find("cannot be created"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
