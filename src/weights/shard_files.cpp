#include "weights/shard_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace klotski {

void ShardFiles::add(std::string name, std::filesystem::path path) {
  Shard& shard = shards_.emplace_back();
  shard.name = std::move(name);
  shard.path = std::move(path);
}

ShardFiles::Identity ShardFiles::identity_of(const File& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) {
    fail(ErrorKind::bad_model, "{}: its state cannot be read: {}", path_in_quotes(file.path()),
         std::strerror(errno));
  }
  Identity identity;
  identity.device = static_cast<uint64_t>(status.st_dev);
  identity.inode = static_cast<uint64_t>(status.st_ino);
  identity.bytes = static_cast<uint64_t>(status.st_size);
  identity.modified_seconds = static_cast<int64_t>(status.st_mtim.tv_sec);
  identity.modified_nanoseconds = static_cast<int64_t>(status.st_mtim.tv_nsec);
  return identity;
}

std::shared_ptr<const File> ShardFiles::open(size_t index) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const OpenFile& open) { return open.index == index; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
    return open_.back().file;
  }
  Shard& shard = shards_.at(index);
  if (open_.size() == kMaxOpen) open_.erase(open_.begin());  // first, so as never to exceed it
  auto file = std::make_shared<const File>(shard.path);
  const Identity identity = identity_of(*file);
  if (shard.opened_before && identity != shard.identity) {
    fail(ErrorKind::bad_model, "{}: changed on disk since the model was opened; load it again",
         shard.name);
  }
  shard.opened_before = true;
  shard.identity = identity;
  OpenFile& open = open_.emplace_back();
  open.index = index;
  open.file = std::move(file);
  return open.file;
}

}  // namespace klotski
