#include "batch/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace klotski {

namespace {

WrittenFile open_results(const std::filesystem::path& path, ResultFile::Writing writing) {
  if (path == "-") {
    const int descriptor = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) {
      fail(ErrorKind::usage, "standard output: cannot be used: {}", std::strerror(errno));
    }
    return {path, TakenDescriptor{descriptor}};
  }
  if (!can_last(path)) return {path, O_WRONLY};
  return {writing == ResultFile::Writing::beside ? beside(path) : path, O_RDWR | O_CREAT};
}

}  // namespace

std::filesystem::path beside(const std::filesystem::path& path) {
  std::filesystem::path name = path;
  return name += ".part";
}

bool can_last(const std::filesystem::path& path) {
  if (path == "-") return false;
  std::error_code unknown;
  const auto type = std::filesystem::status(path, unknown).type();
  return type == std::filesystem::file_type::not_found ||
         type == std::filesystem::file_type::regular;
}

ResultFile::ResultFile(const std::filesystem::path& path, Writing writing)
    : path_(path),
      file_(open_results(path, writing)),
      lasts_(path != "-" && file_.regular()),
      comparing_(lasts_) {
  if (!lasts_) {
    file_.write_some("");  // /dev/full takes no byte: no row is run for it
    return;
  }
  there_ = file_.size();
  if (!file_.lock()) {
    fail(ErrorKind::usage, "{}: another process writes to it; wait for it or choose another name",
         path_in_quotes(file_.path()));
  }
}

bool ResultFile::agrees(std::string_view line) const {
  if (line.size() > there_ - size_) return false;
  std::string found(line.size(), '\0');
  file_.read_at(size_, found);
  return found == line;
}

void ResultFile::put(std::string_view line) {
  if (comparing_ && agrees(line)) {
    size_ += line.size();
    return;
  }
  settle();
  waiting_ += line;
}

void ResultFile::settle() {
  if (comparing_ && there_ > size_) file_.truncate(size_);
  comparing_ = false;
}

void ResultFile::flush() {
  if (lasts_) {
    file_.write_at(size_, waiting_);
    size_ += waiting_.size();
    waiting_.clear();
  }
  while (!waiting_.empty()) waiting_.erase(0, file_.write_some(waiting_));
}

void ResultFile::finish() {
  if (!lasts_) return;
  file_.sync();
  if (file_.path() != path_ && file_.named()) rename_file(file_.path(), path_);
  sync_folder_of(path_);
}

void ResultFile::discard() {
  if (lasts_ && size_ == 0) remove_file(file_.path());
}

}  // namespace klotski
