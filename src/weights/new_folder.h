#pragma once

#include <cstdint>
#include <filesystem>

namespace klotski {

// A folder that appears under its name only when it is complete: until then its files lie in a
// hidden folder beside it. What a killed program left there, the next one for the same name
// removes.
class NewFolder {
 public:
  // Refuses (usage) a name that exists, unless it is an empty folder, and one without a parent.
  explicit NewFolder(const std::filesystem::path& name);
  ~NewFolder();  // removes the files unless published
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& files() const { return files_; }  // where to write them
  const std::filesystem::path& name() const { return name_; }
  // Refuses (does_not_fit) where the disk has no room for so many bytes of weights and the rest of
  // a model.
  void require_space(uint64_t weights) const;
  void publish();

 private:
  std::filesystem::path name_;
  std::filesystem::path files_;
  int lock_ = -1;  // on files_, so that two programs do not write the same folder
};

}  // namespace klotski
