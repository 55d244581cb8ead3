#include "weights/safetensors_writer.h"

#include <set>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "weights/safetensors.h"

namespace klotski {

namespace {

[[noreturn]] void refuse_size(const NewTensor& tensor) {
  fail(ErrorKind::internal, "tensor {} of shape {} has no size of whole bytes",
       in_quotes(tensor.name), format_shape(tensor.shape));
}

std::vector<uint64_t> lay_out(const std::vector<NewTensor>& tensors) {
  std::vector<uint64_t> offsets = {0};
  std::set<std::string_view> names;
  for (const NewTensor& tensor : tensors) {
    uint64_t end = 0;
    if (!add_checked(offsets.back(), bytes_of(tensor), &end)) refuse_size(tensor);
    if (!names.insert(tensor.name).second) {
      fail(ErrorKind::internal, "tensor {} is written twice", in_quotes(tensor.name));
    }
    offsets.push_back(end);
  }
  return offsets;
}

// The length and the JSON, ended by spaces up to where the data begins.
std::string header_of(const std::vector<NewTensor>& tensors, const std::vector<uint64_t>& offsets) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  for (size_t i = 0; i < tensors.size(); ++i) {
    const NewTensor& tensor = tensors[i];
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        Json(tensor.name).dump(), dtype_name(tensor.dtype),
                        Json(tensor.shape).dump(), offsets[i], offsets[i + 1]);
  }
  json += '}';
  const uint64_t used = kSafetensorsPrefixBytes + json.size();
  json.append(
      (kSafetensorsDataAlignment - used % kSafetensorsDataAlignment) % kSafetensorsDataAlignment,
      ' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    fail(ErrorKind::internal, "{} tensors need a header of {}, more than the format's {}",
         tensors.size(), format_bytes(json.size()), format_bytes(kMaxSafetensorsHeaderBytes));
  }
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>((json.size() >> (8 * i)) & 0xFF);
  return prefix + json;
}

}  // namespace

uint64_t bytes_of(const NewTensor& tensor) {
  uint64_t bytes = 0;
  if (!byte_count(tensor.shape, tensor.dtype, &bytes)) refuse_size(tensor);
  return bytes;
}

bool has_tensors(const std::filesystem::path& path, const std::vector<NewTensor>& tensors) {
  const std::vector<uint64_t> offsets = lay_out(tensors);
  const std::string header = header_of(tensors, offsets);
  const File file(path);
  if (file.size() != header.size() + offsets.back()) return false;
  std::string found(header.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(found)));
  return found == header;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<NewTensor>& tensors)
    : file_(path), offsets_(lay_out(tensors)) {
  const std::string header = header_of(tensors, offsets_);
  data_start_ = header.size();
  file_.write_at(0, std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(size_t index, uint64_t offset, std::span<const std::byte> bytes) {
  if (index + 1 >= offsets_.size() || offset > offsets_[index + 1] - offsets_[index] ||
      bytes.size() > offsets_[index + 1] - offsets_[index] - offset) {
    fail(ErrorKind::internal, "{} bytes at {} are not inside tensor {}", bytes.size(), offset,
         index);
  }
  file_.write_at(data_start_ + offsets_[index] + offset, bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  if (written_ != data_bytes()) {
    fail(ErrorKind::internal, "{} bytes of tensors were promised, {} written", data_bytes(),
         written_.load());
  }
  file_.finish();
}

}  // namespace klotski
