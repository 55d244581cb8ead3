#pragma once

#include <cstdint>
#include <filesystem>

namespace klotski {

// Whether files of a NewFolder that was not published are there for the next program that writes a
// folder of this name.
enum class Leftovers { removed, kept };

// A folder that appears under its name only when it is complete: until then its files lie in a
// hidden folder next to it. With Leftovers::removed, files that a killed program left there are
// removed.
class NewFolder {
 public:
  // Refuses (usage) a name that exists, unless it is an empty folder, and one without a parent.
  explicit NewFolder(const std::filesystem::path& name, Leftovers leftovers = Leftovers::removed);
  ~NewFolder();  // removes the files unless published or kept
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& files() const { return files_; }  // the hidden folder to write to
  const std::filesystem::path& name() const { return name_; }
  void clear();  // removes the files
  // Refuses (does_not_fit) where the disk has no room for `weights` bytes of weights and the rest
  // of a model.
  void require_space(uint64_t weights) const;
  void publish();

 private:
  std::filesystem::path name_;
  std::filesystem::path files_;
  Leftovers leftovers_;
  int lock_ = -1;  // lock of files_, so that two programs do not write one folder
};

}  // namespace klotski
