#include "weights/new_folder.h"

#include <gtest/gtest.h>

#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

TEST(NewFolder, AppearsWhenPublished) {
  ScratchFolder scratch;
  const fs::path name = scratch.path() / "model";
  {
    NewFolder folder(name);
    write_file(folder.files() / "a", "text");
    EXPECT_FALSE(fs::exists(name));
    folder.publish();
    EXPECT_EQ(content_of(name / "a"), "text");
  }
  EXPECT_EQ(content_of(name / "a"), "text");
  fs::remove_all(name);
  EXPECT_TRUE(has_nothing(scratch.path()));
}

TEST(NewFolder, LeavesNothingWhenNotPublished) {
  ScratchFolder scratch;
  {
    NewFolder folder(scratch.path() / "model");
    write_file(folder.files() / "a", "text");
  }
  EXPECT_TRUE(has_nothing(scratch.path()));
}

TEST(NewFolder, TakesAnEmptyFolderAndATrailingSlash) {
  ScratchFolder scratch;
  const fs::path name = scratch.path() / "model";
  fs::create_directory(name);
  NewFolder folder(name.native() + "/");
  EXPECT_EQ(folder.name(), name);
  write_file(folder.files() / "a", "text");
  folder.publish();
  EXPECT_EQ(content_of(name / "a"), "text");
}

TEST(NewFolder, RefusesWhatIsThere) {
  ScratchFolder scratch;
  fs::create_directory(scratch.path() / "full");
  write_file(scratch.path() / "full" / "a", "text");
  write_file(scratch.path() / "file", "text");
  fs::create_directory_symlink(scratch.path() / "full", scratch.path() / "link");
  fs::create_directory_symlink(scratch.path() / "nowhere", scratch.path() / "dangling");
  for (const char* name : {"full", "file", "link", "dangling", "none/model"}) {
    EXPECT_EQ(kind_of([&] { NewFolder folder(scratch.path() / name); }), ErrorKind::usage) << name;
  }
  EXPECT_EQ(kind_of([&] { NewFolder folder(""); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { NewFolder folder("/"); }), ErrorKind::usage);
  EXPECT_EQ(content_of(scratch.path() / "full" / "a"), "text");
}

TEST(NewFolder, RefusesMoreThanTheDiskHas) {
  ScratchFolder scratch;
  const NewFolder folder(scratch.path() / "model");
  folder.require_space(0);
  EXPECT_EQ(kind_of([&] { folder.require_space(uint64_t{1} << 60); }), ErrorKind::does_not_fit);
}

TEST(NewFolder, RefusesToReplaceWhatCameMeanwhile) {
  ScratchFolder scratch;
  const fs::path name = scratch.path() / "model";
  NewFolder folder(name);
  fs::create_directory(name);
  write_file(name / "a", "theirs");
  EXPECT_EQ(kind_of([&] { folder.publish(); }), ErrorKind::usage);
  EXPECT_EQ(content_of(name / "a"), "theirs");
}

TEST(NewFolder, RemovesWhatAKilledProgramLeftButNotWhatARunningOneWrites) {
  ScratchFolder scratch;
  const fs::path name = scratch.path() / "model";
  fs::path files;
  {
    NewFolder running(name);
    files = running.files();
    EXPECT_EQ(kind_of([&] { NewFolder second(name); }), ErrorKind::usage);
    EXPECT_TRUE(fs::is_directory(files));
  }
  fs::create_directories(files / "left");
  write_file(files / "left" / "over", "text");
  NewFolder next(name);
  EXPECT_TRUE(has_nothing(next.files()));
}

TEST(NewFolder, KeepsFilesForTheNextProgramWhereAsked) {
  ScratchFolder scratch;
  const fs::path name = scratch.path() / "model";
  { NewFolder empty(name, Leftovers::kept); }
  EXPECT_TRUE(has_nothing(scratch.path()));
  {
    NewFolder first(name, Leftovers::kept);
    write_file(first.files() / "a", "text");
  }
  NewFolder second(name, Leftovers::kept);
  EXPECT_EQ(content_of(second.files() / "a"), "text");
  EXPECT_EQ(kind_of([&] { NewFolder third(name, Leftovers::kept); }), ErrorKind::usage);
  second.clear();
  EXPECT_TRUE(has_nothing(second.files()));
  write_file(second.files() / "b", "text");
  second.publish();
  EXPECT_EQ(content_of(name / "b"), "text");
}

}  // namespace
}  // namespace klotski
