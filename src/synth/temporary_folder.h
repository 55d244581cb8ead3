#pragma once

#include <filesystem>

namespace klotski {

// The system's folder, as TMPDIR names it. Refuses (usage) a path that is no folder.
std::filesystem::path folder_for_temporary_files();

// A folder of this process that goes away with the object. A folder that a killed process left is
// removed by the next process that makes one.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = folder_for_temporary_files());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // lock of the folder: whoever can take it knows that its process is gone
};

}  // namespace klotski
