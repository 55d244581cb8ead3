#include "synth/temporary_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "synth/testing.h"

namespace klotski {
namespace {

using namespace testing_synth;
namespace fs = std::filesystem;

TEST(TemporaryFolder, GoesAwayWithItsFiles) {
  const ScratchFolder scratch;
  fs::path path;
  {
    const TemporaryFolder folder(scratch.path());
    path = folder.path();
    EXPECT_EQ(path.parent_path(), scratch.path());
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directory(path / "inner");
    write_file(path / "inner" / "file", "x");
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(has_nothing(scratch.path()));
}

TEST(TemporaryFolder, SeveralAtOnce) {
  const ScratchFolder scratch;
  const TemporaryFolder one(scratch.path());
  write_file(one.path() / "file", "x");
  const TemporaryFolder two(scratch.path());
  EXPECT_NE(one.path(), two.path());
  EXPECT_TRUE(fs::exists(one.path() / "file"));  // in use, so not taken for left behind
}

TEST(TemporaryFolder, RemovesWhatAKilledProcessLeft) {
  const ScratchFolder scratch;
  fs::create_directory(scratch.path() / "klotski-model-link-target");
  fs::create_directory(scratch.path() / "other");
  write_file(scratch.path() / "klotski-model-file", "x");
  fs::create_directory_symlink(scratch.path() / "other", scratch.path() / "klotski-model-link");
  const pid_t child = ::fork();
  if (child == 0) {
    const TemporaryFolder folder(scratch.path());
    write_file(folder.path() / "file", "x");
    ::_exit(0);  // nothing is destroyed, as on a signal
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const TemporaryFolder folder(scratch.path());
  size_t left = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch.path())) {
    EXPECT_FALSE(fs::exists(entry.path() / "file")) << entry.path();
    ++left;
  }
  EXPECT_EQ(left, 4u);  // the new folder, and those that no process left
}

TEST(TemporaryFolder, RefusesWhereNoneCanBe) {
  EXPECT_EQ(kind_of([] { const TemporaryFolder folder("/absent/folder"); }), ErrorKind::internal);
  const testing_files::ScopedEnvironment variable("TMPDIR", "/absent/folder");
  EXPECT_EQ(kind_of([] { const TemporaryFolder folder; }), ErrorKind::usage);
}

}  // namespace
}  // namespace klotski
