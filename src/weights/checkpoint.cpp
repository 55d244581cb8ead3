#include "weights/checkpoint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kSuffix = ".safetensors";

// The largest published indices have some 10 MB; parsed, the text costs many times its size.
constexpr uint64_t kMaxIndexBytes = 32 * kMiB;

// The content of model.safetensors.index.json.
struct Index {
  std::map<std::string, std::string, std::less<>> shard_of;  // file name by tensor name
  bool has_total = false;
  uint64_t total_bytes = 0;
};

uint64_t read_total(const JsonFields& metadata) {
  // Some writers give a float: whole, and exact up to 2^53.
  const double total = metadata.number("total_size", 0, 9.0e18);
  const Json* value = metadata.find("total_size");
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  const auto whole = static_cast<uint64_t>(total);
  if (static_cast<double>(whole) != total) metadata.refuse("total_size", "a whole number of bytes");
  return whole;
}

Index read_index(const fs::path& folder) {
  const std::string what = path_in_quotes(folder / kIndexName);
  const Json json = parse_json(read_in_folder(folder, kIndexName, kMaxIndexBytes), what,
                               ErrorKind::bad_model, {.wanted = {"weight_map", "metadata"}});
  const JsonFields fields(json, what);
  const Json* map = fields.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    fields.refuse("weight_map", "an object that gives each tensor its file");
  }
  Index index;
  for (const auto& item : map->items()) {
    if (!item.value().is_string()) {
      fail(ErrorKind::bad_model, "{}: weight_map: {}: expected the name of a file, found {}", what,
           in_quotes(item.key()), in_quotes(item.value().dump()));
    }
    auto shard = item.value().get<std::string>();
    if (!shard.ends_with(kSuffix)) {
      fail(ErrorKind::bad_model, "{}: weight_map: {}: expected a *.safetensors file, found {}",
           what, in_quotes(item.key()), in_quotes(shard));
    }
    index.shard_of.emplace(item.key(), std::move(shard));
  }
  const auto metadata = fields.object("metadata");
  index.has_total = metadata && metadata->has("total_size");
  if (index.has_total) index.total_bytes = read_total(*metadata);
  return index;
}

std::string only_safetensors_file(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::string name = it->path().filename().native();
    if (name.ends_with(kSuffix)) names.push_back(std::move(name));
  }
  if (error) {
    fail(ErrorKind::bad_model, "{}: cannot be listed: {}", path_in_quotes(folder), error.message());
  }
  if (names.size() != 1) {
    fail(ErrorKind::bad_model, "{}: expected {}, {} or a single *.safetensors file, found {}",
         path_in_quotes(folder), kIndexName, kSingleName,
         names.empty() ? "none" : fmt::format("{} without an index", names.size()));
  }
  return names.front();
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& folder)
    : TensorSource(folder), files_(std::make_unique<ShardFiles>()) {}

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint(folder);
  if (is_gguf_file(folder)) {
    checkpoint.open_gguf();
  } else if (has_entry(folder, kIndexName)) {
    checkpoint.open_indexed();
  } else {
    checkpoint.add_shard(has_entry(folder, kSingleName) ? std::string(kSingleName)
                                                        : only_safetensors_file(folder));
    checkpoint.sort_by_name();
  }
  return checkpoint;
}

Checkpoint Checkpoint::described(const fs::path& folder, std::vector<TensorEntry> tensors) {
  Checkpoint checkpoint(folder);
  uint64_t end = 0;
  for (TensorEntry& tensor : tensors) {
    const uint64_t padding =
        (kDescribedAlignment - end % kDescribedAlignment) % kDescribedAlignment;
    tensor.shard = 0;
    if (!byte_count(tensor.shape, tensor.dtype, &tensor.bytes) ||
        !add_checked(end, padding, &tensor.offset) ||
        !add_checked(tensor.offset, tensor.bytes, &end)) {
      fail(ErrorKind::does_not_fit, "{}: with tensor {} of shape {} there are more than 2^64 bytes",
           path_in_quotes(folder), in_quotes(tensor.name), format_shape(tensor.shape));
    }
  }
  if (!checkpoint.add_tensors(std::move(tensors))) {
    fail(ErrorKind::internal, "{}: tensors that end before byte 2^64 have more bytes",
         path_in_quotes(folder));
  }
  checkpoint.sort_by_name();
  return checkpoint;
}

void Checkpoint::open_indexed() {
  const Index index = read_index(folder());
  std::map<std::string_view, uint32_t> shard_numbers;
  for (const auto& [tensor, shard] : index.shard_of) shard_numbers.emplace(shard, 0);
  for (auto& [shard, number] : shard_numbers) {
    number = static_cast<uint32_t>(files_->count());
    add_shard(std::string(shard));
  }
  sort_by_name();
  const std::string what = path_in_quotes(folder() / kIndexName);
  for (const auto& [tensor, shard] : index.shard_of) {
    const TensorEntry* entry = find(tensor);
    if (entry == nullptr || entry->shard != shard_numbers.at(shard)) {
      fail(ErrorKind::bad_model, "{}: expected tensor {} in {}, found it in {}", what,
           in_quotes(tensor), in_quotes(shard),
           entry == nullptr ? "no file" : shard_name(entry->shard));
    }
  }
  if (index.has_total && index.total_bytes != total_bytes()) {
    fail(ErrorKind::bad_model,
         "{}: metadata.total_size: expected the {} bytes of the tensors, "
         "found {}",
         what, total_bytes(), index.total_bytes);
  }
}

void Checkpoint::add_shard(const std::string& name) {
  const auto number = static_cast<uint32_t>(files_->count());
  const std::string what = path_in_quotes(folder() / name);
  files_->add(what, file_in_folder(folder(), name));
  add_entries(number, read_safetensors_header(*files_->open(number), what));
}

void Checkpoint::add_entries(uint32_t shard, std::vector<TensorEntry> entries) {
  for (TensorEntry& entry : entries) entry.shard = shard;
  if (!add_tensors(std::move(entries))) {
    fail(ErrorKind::bad_model, "{}: the tensors have more than 2^64 bytes", shard_name(shard));
  }
}

std::string Checkpoint::shard_name(uint32_t shard) const {
  return shard_count() == 0 ? "its description" : files_->name(shard);
}

std::shared_ptr<const File> Checkpoint::file(uint32_t shard) const {
  if (shard_count() == 0) {
    fail(ErrorKind::internal, "{}: these weights lie in no file", path_in_quotes(folder()));
  }
  return files_->open(shard);
}

}  // namespace klotski
