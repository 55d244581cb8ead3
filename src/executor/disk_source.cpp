#include "executor/disk_source.h"

namespace klotski {

DiskSource::DiskSource(const TensorSource& tensors, const DiskReaderOptions& options)
    : reader_(options) {
  for (size_t shard = 0; shard < tensors.shard_count(); ++shard) {
    files_.emplace_back(tensors.file(static_cast<uint32_t>(shard)));
  }
}

void DiskSource::read(const WeightUnit&, const UnitLayout& layout, std::span<std::byte> buffer,
                      const Processor&) {
  std::vector<ReadExtent> extents;
  for (const UnitRead& read : layout.reads) {
    extents.push_back({.file = &files_[read.shard],
                       .offset = read.offset,
                       .bytes = read.bytes,
                       .destination = buffer.data() + read.at});
  }
  reader_.read(extents);
}

}  // namespace klotski
