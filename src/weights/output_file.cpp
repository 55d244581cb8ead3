#include "weights/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace klotski {

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_writing(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail_writing(int error) const {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(full ? ErrorKind::does_not_fit : ErrorKind::internal, "{}: cannot be written: {}{}",
       path_in_quotes(path_), std::strerror(error), full ? "; free space, or write elsewhere" : "");
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing(errno);
    if (written == 0) fail_writing(ENOSPC);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::finish() {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL) fail_writing(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_writing(errno);
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.finish();
}

}  // namespace klotski
