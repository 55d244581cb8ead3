#include "cli/model_list.h"

#include <algorithm>

#include "base/error.h"
#include "base/folder.h"
#include "weights/gguf.h"
#include "weights/hub_cache.h"
#include "weights/model_folder.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostModels = 1000;
constexpr int64_t kMostEntries = 20'000;  // of all folders together
constexpr int kFolderLevels = 3;          // a folder, its subfolders and theirs

// Shards after the first belong to the first: model-00002-of-00007.gguf.
bool is_later_shard(const fs::path& file) {
  const std::string stem = file.stem().string();
  constexpr size_t kNumbers = 15;  // "-00002-of-00007"
  if (stem.size() <= kNumbers) return false;
  const std::string end = stem.substr(stem.size() - kNumbers);
  return end[0] == '-' && end.substr(6, 4) == "-of-" && end.substr(1, 5) != "00001";
}

class ModelFinder {
 public:
  // The entries of a folder in order of their names; none of a folder that cannot be read.
  std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
         !error && at != fs::directory_iterator(); at.increment(error)) {
      if (++entries_ > kMostEntries) {
        search_.cut_short = true;
        break;
      }
      found.push_back(at->path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  void add(std::string name, fs::path place) {
    if (search_.models.size() >= kMostModels) {
      search_.cut_short = true;
      return;
    }
    search_.models.push_back({std::move(name), std::move(place)});
  }

  void add_folder(const fs::path& folder, int levels) {
    if (has_entry(folder, "config.json")) add(folder.string(), folder);
    for (const fs::path& entry : entries(folder)) {
      std::error_code error;
      // Links to folders are not followed: they may lead in circles.
      const bool is_folder = fs::is_directory(fs::symlink_status(entry, error));
      if (is_folder && levels > 1) add_folder(entry, levels - 1);
      if (!is_folder && is_gguf_file(entry) && !is_later_shard(entry)) add(entry.string(), entry);
    }
  }

  void add_repository(const fs::path& cache, const fs::path& folder) {
    constexpr std::string_view kPrefix = "models--";
    std::string id = folder.filename().string();
    if (id.rfind(kPrefix, 0) != 0) return;
    id.erase(0, kPrefix.size());
    if (const size_t dashes = id.find("--"); dashes != std::string::npos)
      id.replace(dashes, 2, "/");
    const auto model = parse_hub_model(id);
    if (!model) return;
    std::optional<fs::path> snapshot;
    try {
      snapshot = find_in_hub_cache(cache, *model);
    } catch (const Error&) {  // opening the model says why
      snapshot = folder;
    }
    if (!snapshot) return;  // nothing of the main revision was fetched
    const size_t before = search_.models.size();
    if (!has_entry(*snapshot, "config.json")) {
      for (const fs::path& entry : entries(*snapshot)) {
        if (is_gguf_file(entry) && !is_later_shard(entry)) add(entry.string(), entry);
      }
    }
    if (search_.models.size() == before) add(id, *snapshot);
  }

  ModelSearch result() && { return std::move(search_); }

 private:
  ModelSearch search_;
  int64_t entries_ = 0;
};

}  // namespace

ModelSearch find_models(const std::optional<fs::path>& hub_cache,
                        const std::vector<std::string>& folders) {
  ModelFinder finder;
  try {
    finder.add("tiny", find_model("tiny"));
  } catch (const Error&) {  // installed without it
  }
  if (hub_cache) {
    for (const fs::path& entry : finder.entries(*hub_cache)) {
      finder.add_repository(*hub_cache, entry);
    }
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
      fail(ErrorKind::usage, "{}: expected a folder to look for models in", path_in_quotes(folder));
    }
    finder.add_folder(folder, kFolderLevels);
  }
  return std::move(finder).result();
}

}  // namespace klotski
