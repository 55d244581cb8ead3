#include "weights/shard_files.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

void ShardFiles::add(std::string name, std::filesystem::path path) {
  Shard& shard = shards_.emplace_back();
  shard.name = std::move(name);
  shard.path = std::move(path);
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
  auto file = std::make_shared<const File>(File::at_real_path(shard.path));
  if (shard.opened_before && !file->identity().same_content(shard.identity)) {
    fail(ErrorKind::bad_model, "{}: changed on disk since the model was opened; load it again",
         shard.name);
  }
  shard.opened_before = true;
  shard.identity = file->identity();
  OpenFile& open = open_.emplace_back();
  open.index = index;
  open.file = std::move(file);
  return open.file;
}

}  // namespace klotski
