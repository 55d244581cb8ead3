#pragma once

#include <filesystem>

namespace klotski {

// The system's own, as TMPDIR names it. Refuses (usage) what is none.
std::filesystem::path folder_for_temporary_files();

// A folder of this process that goes away with the object. What a killed process left, the next one
// that makes such a folder removes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = folder_for_temporary_files());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // on the folder: who can take it knows that its process is gone
};

}  // namespace klotski
