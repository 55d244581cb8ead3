#include "batch/fingerprint.h"

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/content_hash.h"
#include "base/file.h"
#include "base/folder.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

constexpr uint64_t kSmallFileBytes = 64 * kMiB;  // more of a header or a small file does not count
constexpr uint64_t kHashedAtOnce = 64 * kKiB;
constexpr uint64_t kSampleBytes = 4 * kKiB;
constexpr uint64_t kSamplesOfAFile = 256;

// Adds bytes of a file, a piece at a time: they are in no memory plan.
void add_range(ContentHash& hash, const File& file, uint64_t begin, uint64_t bytes) {
  const uint64_t end = begin + std::min(bytes, file.size() - begin);
  std::string piece;
  for (; begin < end; begin += piece.size()) {
    piece.resize(std::min(end - begin, kHashedAtOnce));
    file.read_at(begin, std::as_writable_bytes(std::span(piece)));
    hash.add(piece);
  }
}

// A small file, or of a large one the bytes before the first tensor, which say what lies where, and
// samples of the rest.
void add_weights(ContentHash& hash, const File& file, uint64_t header_bytes) {
  hash.add(file.size());
  if (file.size() <= kSmallFileBytes) return add_range(hash, file, 0, file.size());
  const uint64_t header = std::min({header_bytes, file.size(), kSmallFileBytes});
  add_range(hash, file, 0, header);
  const uint64_t rest = file.size() - header;
  if (rest == 0) return;
  const uint64_t last = rest - std::min(rest, kSampleBytes);  // begin of the last sample
  for (uint64_t i = 0; i < kSamplesOfAFile; ++i) {
    const uint64_t at = header + last / (kSamplesOfAFile - 1) * i;
    add_range(hash, file, i + 1 == kSamplesOfAFile ? header + last : at, kSampleBytes);
  }
}

void add_small_files(ContentHash& hash, const std::filesystem::path& folder) {
  std::set<std::string> names;  // in an order that does not depend on the folder's
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "generation_config.json" || is_tokenizer_file(name)) {
      names.insert(name);
    }
  }
  for (const std::string& name : names) {
    hash.add(name);
    add_range(hash, open_in_folder(folder, name), 0, kSmallFileBytes);
  }
}

}  // namespace

std::string model_fingerprint(const OpenedModel& model) {
  ContentHash hash;
  const Checkpoint& checkpoint = model.checkpoint;
  if (std::filesystem::is_directory(model.folder)) add_small_files(hash, model.folder);
  std::vector<uint64_t> first(checkpoint.shard_count(), UINT64_MAX);
  for (const TensorEntry& tensor : checkpoint.tensors()) {
    hash.add(tensor.name);
    hash.add(tensor.bytes);
    if (tensor.shard < first.size()) {
      first[tensor.shard] = std::min(first[tensor.shard], tensor.offset);
    }
  }
  for (uint32_t shard = 0; shard < first.size(); ++shard) {
    add_weights(hash, *checkpoint.file(shard), first[shard]);
  }
  return hash.text();
}

}  // namespace klotski
