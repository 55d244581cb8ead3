#include "model/other_files.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/folder.h"
#include "weights/model_folder.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCopiedBytes = 256 * kMiB;  // size of a file that holds no weights

// Whether a file is needed besides a model's weights.
bool is_needed(std::string_view name) {
  return name == "config.json" || name == "generation_config.json" || is_tokenizer_file(name);
}

bool is_weights(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return ends(".safetensors") || ends(".safetensors.index.json") || ends(".pth") || ends(".gguf") ||
         (name.starts_with("pytorch_model") && (ends(".bin") || ends(".bin.index.json")));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().native());
  }
  if (error) {
    fail(ErrorKind::bad_model, "{}: cannot be listed: {}", path_in_quotes(folder), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The names of the folder that lead to the files whose weights are written anew.
std::set<std::string> own_weights(const TensorSource& checkpoint,
                                  const std::vector<std::string>& names) {
  std::set<fs::path> files;
  for (uint32_t shard = 0; shard < checkpoint.shard_count(); ++shard) {
    files.insert(checkpoint.file(shard)->path());
  }
  std::set<std::string> own = {"model.safetensors.index.json"};
  for (const std::string& name : names) {
    std::error_code error;
    if (files.contains(fs::canonical(checkpoint.folder() / name, error))) own.insert(name);
  }
  return own;
}

// Why an entry of the folder is none to copy, or nothing and the bytes of the file.
std::string why_left_out(const fs::path& folder, const std::string& name, uint64_t* bytes) {
  const fs::path path = folder / name;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);  // the file behind a link
  if (error) return error.message();
  if (fs::is_directory(status)) return "a folder";
  if (is_weights(name)) return "other weights";
  if (!fs::is_regular_file(status)) return "no regular file";
  *bytes = fs::file_size(path, error);
  if (error) return error.message();
  return *bytes > kMostCopiedBytes ? "too large" : "";
}

}  // namespace

OtherFiles list_other_files(const TensorSource& checkpoint) {
  const std::vector<std::string> names = names_in(checkpoint.folder());
  const std::set<std::string> own = own_weights(checkpoint, names);
  OtherFiles files;
  for (const std::string& name : names) {
    if (name.starts_with('.') || own.contains(name)) continue;
    uint64_t bytes = 0;
    const std::string reason = why_left_out(checkpoint.folder(), name, &bytes);
    if (!reason.empty() && is_needed(name)) {
      fail(ErrorKind::bad_model, "{}: expected a file to copy of at most {}, found: {}",
           path_in_quotes(checkpoint.folder() / name), format_bytes(kMostCopiedBytes), reason);
    }
    if (reason.empty()) {
      files.names.push_back(name);
      files.bytes += bytes;
    } else {
      files.left_out.push_back({name, reason});
    }
  }
  return files;
}

void copy_files(OtherFiles& files, const std::filesystem::path& from,
                const std::filesystem::path& to) {
  for (const std::string& name : files.names) {
    std::string content;
    try {
      content = read_in_folder(from, name, kMostCopiedBytes);
    } catch (const Error& error) {
      if (is_needed(name)) throw;
      files.left_out.push_back({name, error.what()});
      continue;
    }
    write_text_file(to / name, content);
  }
  std::sort(files.left_out.begin(), files.left_out.end(),
            [](const NotCopied& a, const NotCopied& b) { return a.name < b.name; });
}

}  // namespace klotski
