#include "cli/model_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;

class ModelList : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / fmt::format("klotski-model-list-{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path make(const std::string& name) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path;
  }
  // The names of the models found, without the bundled one, relative to the folder.
  std::vector<std::string> names(const std::optional<fs::path>& cache,
                                 const std::vector<std::string>& folders) const {
    std::vector<std::string> found;
    for (const FoundModel& model : find_models(cache, folders).models) {
      if (model.name == "tiny") continue;
      const std::string prefix = folder_.string() + "/";
      found.push_back(model.name.rfind(prefix, 0) == 0 ? model.name.substr(prefix.size())
                                                       : model.name);
    }
    return found;
  }

  fs::path folder_;
};

TEST_F(ModelList, FoldersAndFirstShards) {
  make("a/config.json");
  make("b/deeper/config.json");
  make("b/deeper/far/too/far/config.json");
  make("c/one.gguf");
  make("c/big-00001-of-00002.gguf");
  make("c/big-00002-of-00002.gguf");
  make("c/notes.txt");
  EXPECT_EQ(names({}, {folder_.string()}),
            (std::vector<std::string>{"a", "b/deeper", "c/big-00001-of-00002.gguf", "c/one.gguf"}));
}

TEST_F(ModelList, RepositoriesOfTheHubCache) {
  const std::string commit(40, 'a');
  for (const char* id : {"org--one", "two", "org--gguf", "..--..", "bad\nname"}) {
    make(fmt::format("models--{}/refs/main", id));
    std::ofstream(folder_ / fmt::format("models--{}/refs/main", id)) << commit;
  }
  make("models--org--one/snapshots/" + commit + "/config.json");
  make("models--two/snapshots/" + commit + "/config.json");
  make("models--org--gguf/snapshots/" + commit + "/m.gguf");
  make("models--org--unfetched/refs/main");
  make("datasets--org--data/refs/main");
  const auto found = names(folder_, {});
  EXPECT_EQ(found, (std::vector<std::string>{"models--org--gguf/snapshots/" + commit + "/m.gguf",
                                             "org/one", "two"}));
}

TEST_F(ModelList, HostileFolders) {
  make("a/config.json");
  fs::create_directory_symlink(folder_, folder_ / "a" / "circle");
  fs::create_symlink("nowhere", folder_ / "dangling.gguf");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.gguf").c_str(), 0600), 0);
  fs::create_directories(folder_ / "folder.gguf");
  const std::vector<std::string> found = names(folder_ / "absent", {folder_.string()});
  EXPECT_EQ(found.front(), "a");
  EXPECT_LE(found.size(), 3U);
  EXPECT_THROW(find_models({}, {(folder_ / "absent").string()}), Error);
}

TEST_F(ModelList, TooManyEntriesAreCutShort) {
  for (int i = 0; i < 1100; ++i) make(fmt::format("m{}.gguf", i));
  const ModelSearch search = find_models({}, {folder_.string()});
  EXPECT_TRUE(search.cut_short);
  EXPECT_EQ(search.models.size(), 1000U);
}

}  // namespace
}  // namespace klotski
