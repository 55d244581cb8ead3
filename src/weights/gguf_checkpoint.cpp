// The GGUF files of a model: Checkpoint::open of one.

#include <string>

#include "base/error.h"
#include "base/folder.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

// The end of the name of shard `number`, which counts from 0 on.
std::string shard_suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}{}", number + 1, count, kGgufSuffix);
}

// The name of the first shard without its suffix.
std::string shard_stem(const fs::path& first, const GgufSplit& split) {
  std::string name = first.filename().native();
  const std::string what = path_in_quotes(first);
  const std::string suffix = shard_suffix(split.number, split.count);
  if (!name.ends_with(suffix)) {
    fail(ErrorKind::bad_model,
         "{}: metadata 'split.count' says that it is one of {} files: expected a name that ends "
         "with {}, found another; give the files the names that they were written with",
         what, split.count, suffix);
  }
  name.resize(name.size() - suffix.size());
  if (split.number != 0) {
    fail(ErrorKind::bad_model, "{}: expected the first of {} files, found number {}; name {}", what,
         split.count, split.number + 1, in_quotes(name + shard_suffix(0, split.count)));
  }
  return name;
}

void check_shard(const GgufSplit& first, const GgufSplit& found, int64_t number,
                 std::string_view what) {
  if (found.number == number && found.count == first.count) return;
  fail(ErrorKind::bad_model, "{}: expected number {} of {} files, found number {} of {}", what,
       number + 1, first.count, found.number + 1, found.count);
}

}  // namespace

void Checkpoint::open_gguf() {
  const fs::path& path = folder();
  const std::string what = path_in_quotes(path);
  files_->add(what, real_path(path));
  GgufFile first = read_gguf(*files_->open(0), what);
  const GgufSplit split = gguf_split(first, what);
  add_entries(0, std::move(first.tensors));
  if (split.count > 1) {
    const std::string stem = shard_stem(path, split);
    const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    for (int64_t number = 1; number < split.count; ++number) {
      const std::string name = stem + shard_suffix(number, split.count);
      const std::string shard_what = path_in_quotes(parent / name);
      files_->add(shard_what, file_in_folder(parent, name));
      GgufFile file = read_gguf(*files_->open(static_cast<size_t>(number)), shard_what);
      check_shard(split, gguf_split(file, shard_what), number, shard_what);
      add_entries(static_cast<uint32_t>(number), std::move(file.tensors));
    }
  }
  sort_by_name();
  if (split.tensors != 0 && static_cast<size_t>(split.tensors) != tensors().size()) {
    fail(ErrorKind::bad_model,
         "{}: metadata 'split.tensors.count': expected the {} tensors of all files, found {}", what,
         tensors().size(), split.tensors);
  }
}

}  // namespace klotski
