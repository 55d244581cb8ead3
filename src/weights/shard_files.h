#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"

namespace klotski {

// The files of a checkpoint, of which only the last few used are open: a large model has more files
// than some systems let a process open. Safe for use from several threads.
class ShardFiles {
 public:
  static constexpr size_t kMaxOpen = 16;

  // Names are for messages; the paths are the real ones. Opens nothing yet.
  void add(std::string name, std::filesystem::path path);

  size_t count() const { return shards_.size(); }
  const std::string& name(size_t index) const { return shards_.at(index).name; }

  // The file, opened anew where it was closed; then a file that changed meanwhile is an error. The
  // caller may keep it: it closes when the last owner lets go.
  std::shared_ptr<const File> open(size_t index);

 private:
  struct Shard {
    std::string name;
    std::filesystem::path path;
    bool opened_before = false;
    FileIdentity identity;
  };
  struct OpenFile {
    size_t index = 0;
    std::shared_ptr<const File> file;
  };

  std::vector<Shard> shards_;
  std::mutex mutex_;
  std::vector<OpenFile> open_;  // the file used last is at the back
};

}  // namespace klotski
