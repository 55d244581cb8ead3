#include "base/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/testing.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    write("model/weights", "inside");
    write("outside/weights", "outside");
  }
  ~FolderTest() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::string read(const std::string& name) const { return read_in_folder(model_, name, 100); }

  // Canonical: a folder above may be a link.
  fs::path root_ = fs::canonical(testing::TempDir()) / (std::to_string(::getpid()) + "_folder");
  fs::path model_ = root_ / "model";
};

TEST_F(FolderTest, LinksWithinTheFolderAreFollowed) {
  fs::create_symlink("weights", model_ / "relative");
  fs::create_symlink(model_ / "weights", model_ / "absolute");
  fs::create_symlink("../model/weights", model_ / "around");
  for (const char* name : {"weights", "relative", "absolute", "around"}) {
    EXPECT_EQ(read(name), "inside") << name;
  }
  fs::create_directory_symlink(model_, root_ / "link");
  EXPECT_EQ(read_in_folder(root_ / "link", "weights", 100), "inside");
}

TEST_F(FolderTest, OfTheHubsCacheTheBlobsBelongToASnapshot) {
  write("repository/blobs/0123", "blob");
  const fs::path snapshot = root_ / "repository" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/0123", snapshot / "weights");
  EXPECT_EQ(read_in_folder(snapshot, "weights", 100), "blob");
}

TEST_F(FolderTest, LinksOutOfTheFolderAreRefused) {
  fs::create_symlink("../outside/weights", model_ / "relative");
  fs::create_symlink(root_ / "outside" / "weights", model_ / "absolute");
  fs::create_symlink("relative", model_ / "twice");
  for (const char* name : {"relative", "absolute", "twice"}) {
    EXPECT_NE(refusal([&] { read(name); }).find("found a link to"), std::string::npos) << name;
  }
}

// Between the check and the opening somebody may exchange the file, or a folder on the way to it.
TEST_F(FolderTest, ALinkThatComesAfterTheCheckIsRefused) {
  const fs::path checked = file_in_folder(model_, "weights");
  EXPECT_EQ(read_text_file(File::at_real_path(checked), 100), "inside");
  fs::remove(model_ / "weights");
  fs::create_symlink("../outside/weights", model_ / "weights");
  EXPECT_NE(refusal([&] { File::at_real_path(checked); }).find("cannot be opened"),
            std::string::npos);
  fs::remove_all(model_);
  fs::create_directory_symlink("outside", model_);
  EXPECT_EQ(read_text_file(File(checked), 100), "outside") << "the path leads there";
  EXPECT_NE(refusal([&] { File::at_real_path(checked); }).find("cannot be opened"),
            std::string::npos);
}

TEST_F(FolderTest, NamesWithFoldersAreRefused) {
  for (const char* name : {"", ".", "..", "../outside/weights", "/etc/passwd"}) {
    EXPECT_NE(refusal([&] { read(name); }).find("plain name"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace klotski
