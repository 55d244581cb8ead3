#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/other_files.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_writer.h"

namespace klotski {

// Numbers of matrices of experts and dense feed-forward parts, by result.
struct CompactCounts {
  int64_t compact = 0;
  int64_t compact_before = 0;
  int64_t not_bf16 = 0;
  int64_t not_smaller = 0;
  int64_t too_different = 0;  // a row has more numbers to list than it has room for

  int64_t left() const { return compact_before + not_bf16 + not_smaller + too_different; }
};

// "2 not BF16, 3 no smaller when compact": why some were left as they were.
std::string why_left(const CompactCounts& counts);

// The tensors of a model as memory has them where matrices that `klotski compact` would make
// compact are packed while they are read: in no files, for a source that packs. Nothing where no
// matrix would take fewer bytes.
std::optional<Checkpoint> packed_in_memory(const ModelDescription& model,
                                           const TensorSource& checkpoint);

struct CompactReport {
  std::filesystem::path folder;
  CompactCounts counts;
  uint64_t bytes_before = 0;  // bytes of weights
  uint64_t bytes_after = 0;
  size_t weight_files = 0;
  std::vector<NotCopied> not_copied;  // sorted, without hidden entries
};

enum class CompactStep { checking, writing };
using CompactProgress = std::function<void(CompactStep step, uint64_t done, uint64_t total)>;

// Writes a model's folder anew, its weights in shards of at most max_shard_bytes: tensors that may
// be compact and take fewer bytes then become so, every other tensor keeps its bytes. Files other
// than weights are copied, including files that links of the folder lead to, without hidden entries
// and those of CompactReport::not_copied. The folder appears under its name when it is complete.
// Every row is expanded again and compared. Refuses (usage) a model in which nothing would become
// compact, and (bad_model) one of which a file it needs, such as its tokenizer, cannot be copied.
// `progress` is called from one thread at a time.
CompactReport compact_model(const ModelDescription& model, const TensorSource& checkpoint,
                            const std::filesystem::path& out, const CompactProgress& progress,
                            uint64_t max_shard_bytes = kMaxShardBytes);

}  // namespace klotski
