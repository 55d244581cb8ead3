#include "base/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/random_bits.h"
#include "base/write_calls.h"

namespace klotski {

NewFile::NewFile(const std::filesystem::path& path) : path_(path), beside_(path) {
  // A rename would put a plain file in the place of a device or a pipe.
  std::error_code unknown;
  const auto type = std::filesystem::status(path, unknown).type();
  if (type != std::filesystem::file_type::not_found &&
      type != std::filesystem::file_type::regular) {
    fail(ErrorKind::usage, "{}: expected a regular file or a new name, found something else",
         path_in_quotes(path));
  }
  // Neither a file nor a link that somebody put there may be written: in a folder that others write
  // to, they must not even know the name.
  beside_ += fmt::format(".new-{:016x}", random_bits());
  descriptor_ = write_calls().open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse("cannot be created");
}

NewFile::~NewFile() {
  ::close(descriptor_);
  if (!renamed_) write_calls().unlink(beside_.c_str());
}

void NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write_calls().write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void NewFile::commit() {
  if (write_calls().fsync(descriptor_) != 0) refuse("cannot be flushed to the disk");
  if (write_calls().rename(beside_.c_str(), path_.c_str()) != 0)
    refuse("cannot be renamed into place");
  renamed_ = true;
}

void NewFile::refuse(std::string_view problem) const {
  fail(ErrorKind::internal, "{}: {}: {}", path_in_quotes(beside_), problem, std::strerror(errno));
}

}  // namespace klotski
