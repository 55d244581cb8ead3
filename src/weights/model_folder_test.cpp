#include "weights/model_folder.h"

#include <gtest/gtest.h>

#include "weights/hub_cache.h"
#include "weights/testing.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;
using testing_files::contains;
using testing_files::error_of;
using testing_files::ScopedEnvironment;
using testing_files::ScratchFolder;
using testing_files::write_file;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

// No variable of the user reaches a test.
class ModelFolder : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  ScopedEnvironment hub_cache_{"HF_HUB_CACHE", nullptr};
  ScopedEnvironment legacy_{"HUGGINGFACE_HUB_CACHE", nullptr};
  ScopedEnvironment hf_home_{"HF_HOME", nullptr};
  ScopedEnvironment xdg_{"XDG_CACHE_HOME", nullptr};
  ScopedEnvironment home_{"HOME", nullptr};
  ScopedEnvironment models_{"KLOTSKI_MODELS", nullptr};
};

// A snapshot of org/name in the cache folder `hub`, on branch main.
fs::path write_snapshot(const fs::path& hub) {
  const fs::path repository = hub / "models--org--name";
  write_file(repository / "refs" / "main", std::string(kCommit) + "\n");
  const fs::path snapshot = repository / "snapshots" / kCommit;
  fs::create_directories(snapshot);
  return snapshot;
}

std::string refused(std::string_view model) {
  return error_of([&] { find_model(model); });
}

TEST_F(ModelFolder, AnExistingFolderIsTaken) {
  EXPECT_EQ(find_model(scratch_.path().native()), scratch_.path());
  EXPECT_EQ(find_model("."), ".");
}

TEST_F(ModelFolder, BundledNamesWorkWithoutAnyVariable) {
  EXPECT_TRUE(fs::exists(find_model("tiny") / "config.json"));
  EXPECT_EQ(find_model("tiny"), find_model("tiny-mixtral"));
}

TEST_F(ModelFolder, TheUsersFolderOfBundledModelsComesFirst) {
  const ScopedEnvironment models("KLOTSKI_MODELS", scratch_.path().c_str());
  fs::create_directory(scratch_.path() / "tiny-mixtral");
  fs::create_directory(scratch_.path() / "mine");
  EXPECT_EQ(find_model("tiny"), scratch_.path() / "tiny-mixtral");
  EXPECT_EQ(find_model("mine"), scratch_.path() / "mine");
}

TEST_F(ModelFolder, EveryPlaceOfTheHubCacheIsKnown) {
  const auto expect_found = [&](const char* name, const char* below) {
    const ScratchFolder folder;
    const ScopedEnvironment variable(name, folder.path().c_str());
    const fs::path snapshot = write_snapshot((folder.path() / below).lexically_normal());
    EXPECT_EQ(fs::canonical(find_model("org/name")), snapshot) << name;
  };
  expect_found("HOME", ".cache/huggingface/hub");
  expect_found("XDG_CACHE_HOME", "huggingface/hub");
  expect_found("HF_HOME", "hub");
  expect_found("HUGGINGFACE_HUB_CACHE", "");
  expect_found("HF_HUB_CACHE", "");
}

TEST_F(ModelFolder, RevisionsAreBranchesTagsOrCommits) {
  const ScopedEnvironment cache("HF_HUB_CACHE", scratch_.path().c_str());
  const fs::path snapshot = write_snapshot(scratch_.path());
  const fs::path repository = scratch_.path() / "models--org--name";
  write_file(repository / "refs" / "refs" / "pr" / "1", kCommit);
  write_file(repository / "refs" / "v1.0", kCommit);
  for (const char* model : {"org/name", "org/name@main", "org/name@v1.0", "org/name@refs/pr/1",
                            "org/name@0123456789abcdef0123456789abcdef01234567"}) {
    EXPECT_EQ(find_model(model), snapshot) << model;
  }
  EXPECT_TRUE(contains(refused("org/name@absent"), "hf download org/name --revision absent"));
  EXPECT_TRUE(contains(refused("org/other"), "hf download org/other"));
  EXPECT_TRUE(contains(refused("org/other"), scratch_.path().native()));
}

TEST_F(ModelFolder, RefsCannotLeadOutOfTheCache) {
  const ScopedEnvironment cache("HF_HUB_CACHE", scratch_.path().c_str());
  write_snapshot(scratch_.path());
  for (const char* bad : {"../../..", "/", "a/b", ".", "..", "", "abc\ndef", "\xFF"}) {
    write_file(scratch_.path() / "models--org--name" / "refs" / "main", bad);
    EXPECT_TRUE(contains(refused("org/name"), "expected a commit")) << bad;
  }
}

TEST_F(ModelFolder, IdsFollowTheRulesOfTheHub) {
  for (const char* good : {"gpt2", "org/name", "a/b", "mistralai/Mixtral-8x7B-v0.1", "o_1/n.2"}) {
    EXPECT_TRUE(parse_hub_model(good)) << good;
  }
  for (const char* bad : {"", "/", "org/", "/name", "a/b/c", "../x", "x/..", "org/na me", "a--b/c",
                          "org/.x", "org/x.", "-a/b", "org/x@", "org/x@../y", "org/x@a//b",
                          "org/x@/a", "org/x@.hidden", "org/x@a b", "org\\x"}) {
    EXPECT_FALSE(parse_hub_model(bad)) << bad;
  }
  EXPECT_FALSE(parse_hub_model("org/" + std::string(93, 'x')));
  EXPECT_FALSE(parse_hub_model("org/x@" + std::string(300, 'x')));
}

TEST_F(ModelFolder, RefusesWhatIsNotAModel) {
  write_file(scratch_.path() / "file", "x");
  EXPECT_TRUE(contains(refused((scratch_.path() / "file").native()), "found a file"));
  EXPECT_TRUE(contains(refused((scratch_.path() / "absent").native()), "not a folder"));
  EXPECT_TRUE(contains(refused("no-such-model"), "not found in"));
  EXPECT_TRUE(contains(refused("org/name"), "no Hugging Face cache"));  // HOME is not set
  for (const char* bad : {"", "a\nb", "a\tb", "\x7F", "\xFF\xFE", "caf\xC3"}) {
    EXPECT_TRUE(contains(refused(bad), "UTF-8")) << bad;
  }
  EXPECT_TRUE(contains(refused(std::string_view("tiny\0x", 6)), "UTF-8"));
  refused("..." + std::string(1'000'000, 'x'));
}

TEST_F(ModelFolder, OfAFolderWithGgufFilesAloneOneMustBeNamed) {
  const ScopedEnvironment cache("HF_HUB_CACHE", (scratch_.path() / "hub").c_str());
  const fs::path snapshot = write_snapshot(scratch_.path() / "hub");
  write_file(snapshot / "b.gguf", "x");
  write_file(snapshot / "a.gguf", "x");
  for (const std::string& model : {snapshot.native(), std::string("org/name")}) {
    EXPECT_TRUE(contains(refused(model), "name its .gguf file, for instance")) << model;
    EXPECT_TRUE(contains(refused(model), "a.gguf")) << model;
  }
  write_file(snapshot / "config.json", "{}");
  EXPECT_EQ(find_model(snapshot.native()), snapshot);
}

TEST_F(ModelFolder, AnExistingFolderWithAnUnsafeNameIsStillRefused) {
  const fs::path folder = scratch_.path() / "a\nb";
  fs::create_directory(folder);
  EXPECT_TRUE(contains(refused(folder.native()), "a\\nb"));
}

}  // namespace
}  // namespace klotski
