#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// A file that appears under its name only when it is complete: written beside, flushed to the disk,
// then renamed. Until commit() the old file, if there is one, stays as it is; without commit()
// nothing is left behind. Refuses (usage) a name that is not a regular file or new.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void refuse(std::string_view problem) const;

  std::filesystem::path path_;
  std::filesystem::path beside_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

}  // namespace klotski
