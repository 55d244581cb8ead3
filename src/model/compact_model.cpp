#include "model/compact_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "model/stored_tensors.h"
#include "model/unit_layout.h"
#include "tensor/compact.h"
#include "tensor/format.h"
#include "weights/front_to_back.h"
#include "weights/gguf.h"
#include "weights/model_folder.h"
#include "weights/new_folder.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCopiedBytes = 256 * kMiB;  // size of a file that holds no weights
constexpr uint64_t kCheckedBytes = 1 * kMiB;       // read at a time

// A tensor of the old folder; tensors to be compact are BF16 matrices.
struct Source {
  const TensorEntry* entry;
  bool compact = false;

  uint64_t plain_row_bytes() const {
    return static_cast<uint64_t>(bytes_per_row(DType::BF16, entry->shape[1]));
  }
  NewTensor in_file() const {
    if (!compact) return {entry->name, entry->dtype, entry->shape};
    return tensor_in_file({{}, entry->name, entry->shape}, kCompactType);
  }
};

// All tensors in the order of the files, tensors that might become compact marked.
std::vector<Source> mark_candidates(const ModelDescription& model, const TensorSource& checkpoint,
                                    CompactCounts& counts) {
  const UnitLayouts checked(model, checkpoint);  // every tensor is as described
  std::vector<Source> sources;
  for (const TensorEntry& entry : checkpoint.tensors()) sources.push_back({.entry = &entry});
  for (const UnitKind kind : {UnitKind::expert, UnitKind::dense}) {
    for (const WeightUnit& unit : units_of(model, kind)) {
      for (const TensorSpec& spec : unit_tensors(model, unit)) {
        const TensorEntry* entry = checkpoint.find(spec.name);
        if (entry == nullptr) {
          const DType stored = find_stored(checkpoint, kind, spec, model.stated_formats).dtype;
          ++(format_of(stored).lossy ? counts.not_bf16 : counts.compact_before);
        } else if (entry->dtype != DType::BF16) {
          ++counts.not_bf16;
        } else if (!packing_saves(kCompactType, entry->shape)) {
          ++counts.not_smaller;
        } else {
          sources[static_cast<size_t>(entry - checkpoint.tensors().data())].compact = true;
        }
      }
    }
  }
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    return std::pair(a.entry->shard, a.entry->offset) < std::pair(b.entry->shard, b.entry->offset);
  });
  return sources;
}

uint64_t bytes_of(const std::vector<Source>& sources) {
  uint64_t total = 0;
  for (const Source& source : sources) {
    if (!add_checked(total, bytes_of(source.in_file()), &total)) {
      fail(ErrorKind::internal, "tensor {} has no size", in_quotes(source.entry->name));
    }
  }
  return total;
}

[[noreturn]] void refuse_nothing(const TensorSource& checkpoint, const CompactCounts& counts) {
  fail(ErrorKind::usage,
       "{}: expected BF16 matrices of experts or dense feed-forward parts that can be compact, "
       "found {}",
       path_in_quotes(checkpoint.folder()), counts.left() == 0 ? "none" : why_left(counts));
}

// Reads rows of a matrix from row `row` on, as many as `numbers` has room for.
void read_rows(const TensorSource& checkpoint, const Source& source, int64_t row,
               std::span<uint16_t> numbers) {
  checkpoint.read_range(*source.entry, static_cast<uint64_t>(row) * source.plain_row_bytes(),
                        std::as_writable_bytes(numbers));
}

bool can_be_compact(const TensorSource& checkpoint, const Source& source) {
  const int64_t rows = source.entry->shape[0];
  const auto columns = static_cast<size_t>(source.entry->shape[1]);
  const auto at_once =
      static_cast<int64_t>(std::max<uint64_t>(1, kCheckedBytes / source.plain_row_bytes()));
  std::vector<uint16_t> plain;
  std::vector<std::byte> compact(static_cast<size_t>(compact_row_bytes(source.entry->shape[1])));
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    plain.resize(static_cast<size_t>(count) * columns);
    read_rows(checkpoint, source, row, plain);
    for (size_t at = 0; at < plain.size(); at += columns) {
      if (!compact_row(std::span(plain).subspan(at, columns), compact.data())) return false;
    }
  }
  return true;
}

// Unmarks tensors of which a row cannot be compact.
void check_candidates(const TensorSource& checkpoint, std::vector<Source>& sources,
                      CompactCounts& counts, const CompactProgress& progress) {
  std::vector<Source*> candidates;
  uint64_t total = 0;
  for (Source& source : sources) {
    if (!source.compact) continue;
    candidates.push_back(&source);
    total += source.entry->bytes;
  }
  std::mutex mutex;  // guards the next members
  uint64_t done = 0;
  front_to_back(candidates.size(), [&](size_t i) {
    Source& source = *candidates[i];
    source.compact = can_be_compact(checkpoint, source);
    const std::lock_guard lock(mutex);
    ++(source.compact ? counts.compact : counts.too_different);
    done += source.entry->bytes;
    progress(CompactStep::checking, done, total);
  });
}

// Rows of a tensor that is to be compact, from byte `offset` of its compact form on.
void make_compact(const TensorSource& checkpoint, const Source& source, uint64_t offset,
                  std::span<std::byte> out) {
  const int64_t columns = source.entry->shape[1];
  const auto row_bytes = static_cast<uint64_t>(compact_row_bytes(columns));
  const auto width = static_cast<size_t>(columns);
  std::vector<uint16_t> plain(out.size() / row_bytes * width);
  std::vector<uint16_t> again(width);
  const auto first = static_cast<int64_t>(offset / row_bytes);
  read_rows(checkpoint, source, first, plain);
  for (size_t i = 0; i * width < plain.size(); ++i) {
    const std::span<const uint16_t> row = std::span(plain).subspan(i * width, width);
    std::byte* made = out.data() + i * row_bytes;
    const bool fits = compact_row(row, made);
    if (fits) expand_row(made, columns, 0, again);
    if (!fits || !std::equal(row.begin(), row.end(), again.begin())) {
      fail(ErrorKind::internal, "tensor {}: row {} is not what it was when it is expanded again",
           in_quotes(source.entry->name), first + static_cast<int64_t>(i));
    }
  }
}

// Whether a file is needed besides a model's weights.
bool is_needed(std::string_view name) {
  return name == "config.json" || name == "generation_config.json" || is_tokenizer_file(name);
}

bool is_weights(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return ends(".safetensors") || ends(".safetensors.index.json") || ends(".pth") || ends(".gguf") ||
         (name.starts_with("pytorch_model") && (ends(".bin") || ends(".bin.index.json")));
}

// The files of the old folder that are none of its weights.
struct OtherFiles {
  std::vector<std::string> names;
  std::vector<NotCopied> left_out;
  uint64_t bytes = 0;
};

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

// Copies files. A file that cannot be read is left out, unless the model needs it.
void copy_files(OtherFiles& files, const fs::path& from, const fs::path& to) {
  for (const std::string& name : files.names) {
    std::string content;
    try {
      content = read_text_file(file_in_folder(from, name), kMostCopiedBytes);
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

// Puts tensors whose bytes are no multiple of kCompactAlignment last, tensors of the oddest sizes
// at the very end: so each tensor is aligned in its file.
void order_by_alignment(std::vector<Source>& sources) {
  const auto alignment = [](const Source& source) {
    return std::countr_zero(bytes_of(source.in_file()) | kCompactAlignment);
  };
  std::stable_sort(sources.begin(), sources.end(),
                   [&](const Source& a, const Source& b) { return alignment(a) > alignment(b); });
}

}  // namespace

std::string why_left(const CompactCounts& counts) {
  std::string text;
  const auto add = [&](int64_t count, std::string_view why) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, why);
  };
  add(counts.compact_before, "compact already");
  add(counts.not_bf16, "not BF16");
  add(counts.not_smaller, "no smaller when compact");
  add(counts.too_different, "of numbers too different in size");
  return text;
}

CompactReport compact_model(const ModelDescription& model, const TensorSource& checkpoint,
                            const fs::path& out, const CompactProgress& progress,
                            uint64_t max_shard_bytes) {
  if (is_gguf_file(checkpoint.folder())) {
    fail(ErrorKind::bad_model, "{}: expected a folder of safetensors to make compact, found GGUF",
         path_in_quotes(checkpoint.folder()));
  }
  CompactReport report;
  report.bytes_before = checkpoint.total_bytes();
  std::vector<Source> sources = mark_candidates(model, checkpoint, report.counts);
  if (std::none_of(sources.begin(), sources.end(), [](const Source& s) { return s.compact; })) {
    refuse_nothing(checkpoint, report.counts);
  }
  OtherFiles files = list_other_files(checkpoint);
  NewFolder folder(out);
  report.folder = folder.name();
  folder.require_space(bytes_of(sources) + files.bytes);  // room for the least it may take; reading
                                                          // takes a while
  copy_files(files, checkpoint.folder(), folder.files());
  report.not_copied = std::move(files.left_out);
  check_candidates(checkpoint, sources, report.counts, progress);
  if (report.counts.compact == 0) refuse_nothing(checkpoint, report.counts);
  report.bytes_after = bytes_of(sources);
  folder.require_space(report.bytes_after);

  order_by_alignment(sources);
  std::vector<NewTensor> tensors;
  for (const Source& source : sources) tensors.push_back(source.in_file());
  uint64_t done = 0;
  report.weight_files = write_checkpoint(
      folder.files(), tensors,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> bytes) {
        const Source& source = sources[tensor];
        if (source.compact) {
          make_compact(checkpoint, source, offset, bytes);
        } else {
          checkpoint.read_range(*source.entry, offset, bytes);
        }
      },
      [&](uint64_t bytes) {
        done += bytes;
        progress(CompactStep::writing, done, report.bytes_after);
      },
      max_shard_bytes);
  folder.publish();
  return report;
}

}  // namespace klotski
