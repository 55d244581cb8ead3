#include "weights/tensor_source.h"

#include <algorithm>
#include <iterator>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

bool TensorSource::add_tensors(std::vector<TensorEntry> entries) {
  for (const TensorEntry& entry : entries) {
    if (!add_checked(total_bytes_, entry.bytes, &total_bytes_)) return false;
  }
  tensors_.insert(tensors_.end(), std::make_move_iterator(entries.begin()),
                  std::make_move_iterator(entries.end()));
  return true;
}

void TensorSource::sort_by_name() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const TensorEntry& a, const TensorEntry& b) { return a.name == b.name; });
  if (twice != tensors_.end()) {
    fail(ErrorKind::bad_model, "{}: expected tensor {} in one file, found it in {} and {}",
         path_in_quotes(folder_), in_quotes(twice->name), shard_name(twice->shard),
         shard_name((twice + 1)->shard));
  }
}

const TensorEntry* TensorSource::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const TensorEntry& TensorSource::require(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) {
    fail(ErrorKind::bad_model, "{}: expected a tensor {}, found none", path_in_quotes(folder_),
         in_quotes(name));
  }
  return *entry;
}

void TensorSource::read(const TensorEntry& entry, std::span<std::byte> out) const {
  if (out.size() != entry.bytes) {
    fail(ErrorKind::internal, "tensor {}: a buffer of {} bytes for {}", in_quotes(entry.name),
         out.size(), entry.bytes);
  }
  read_range(entry, 0, out);
}

void TensorSource::read_range(const TensorEntry& entry, uint64_t offset,
                              std::span<std::byte> out) const {
  if (offset > entry.bytes || out.size() > entry.bytes - offset) {
    fail(ErrorKind::internal, "tensor {}: {} bytes at {} are not within its {}",
         in_quotes(entry.name), out.size(), offset, entry.bytes);
  }
  const std::shared_ptr<const File> shard = file(entry.shard);
  shard->read_at(entry.offset + offset, out);
  shard->require_unchanged();
}

}  // namespace klotski
