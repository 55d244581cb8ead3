#pragma once

#include <vector>

#include "memory/disk_reader.h"
#include "model/unit_source.h"

namespace klotski {

// Units as they lie in a model's files, read past the page cache.
class DiskSource : public UnitSource {
 public:
  // Keeps the files of the source open.
  DiskSource(const TensorSource& tensors, const DiskReaderOptions& options);

  void read(const WeightUnit& unit, const UnitLayout& layout, std::span<std::byte> buffer,
            const Processor& cpu) override;

 private:
  std::vector<DirectFile> files_;  // files by shard
  DiskReader reader_;
};

}  // namespace klotski
