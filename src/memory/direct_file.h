#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/file.h"

namespace klotski {

// A model file read past the page cache: weights are larger than memory, so caching them would only
// push other pages out. Where O_DIRECT is refused (tmpfs, some network disks) reads are buffered.
class DirectFile {
 public:
  explicit DirectFile(std::shared_ptr<const File> file);
  ~DirectFile();
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  bool direct() const { return direct_descriptor_ >= 0; }
  int descriptor() const { return direct() ? direct_descriptor_ : file_->descriptor(); }
  uint64_t size() const { return file_->size(); }  // when the file was opened
  const std::filesystem::path& path() const { return file_->path(); }

  // The size of the file now: smaller than size() where it was cut in the meantime.
  uint64_t size_now() const;
  void require_unchanged() const { file_->require_unchanged(); }

 private:
  std::shared_ptr<const File> file_;
  int direct_descriptor_ = -1;
};

}  // namespace klotski
