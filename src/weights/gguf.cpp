#include "weights/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/format.h"
#include "weights/gguf_cursor.h"
#include "weights/gguf_metadata.h"

namespace klotski {

namespace {

constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kLeastPairBytes = 13;     // empty key, type, value of one byte
constexpr uint64_t kLeastTensorBytes = 24;   // empty name, no dimensions, type, offset

// Types of tensors by their number in files. Those without a DType are refused by name.
struct GgufType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype = {};
};
constexpr std::array kGgufTypes = {
    GgufType{0, "F32", DType::F32},
    GgufType{1, "F16", DType::F16},
    GgufType{2, "Q4_0", DType::Q4_0},
    GgufType{3, "Q4_1", DType::Q4_1},
    GgufType{6, "Q5_0", DType::Q5_0},
    GgufType{7, "Q5_1", DType::Q5_1},
    GgufType{8, "Q8_0", DType::Q8_0},
    GgufType{9, "Q8_1"},
    GgufType{10, "Q2_K", DType::Q2_K},
    GgufType{11, "Q3_K", DType::Q3_K},
    GgufType{12, "Q4_K", DType::Q4_K},
    GgufType{13, "Q5_K", DType::Q5_K},
    GgufType{14, "Q6_K", DType::Q6_K},
    GgufType{15, "Q8_K"},
    GgufType{16, "IQ2_XXS"},
    GgufType{17, "IQ2_XS"},
    GgufType{18, "IQ3_XXS"},
    GgufType{19, "IQ1_S"},
    GgufType{20, "IQ4_NL", DType::IQ4_NL},
    GgufType{21, "IQ3_S"},
    GgufType{22, "IQ2_S"},
    GgufType{23, "IQ4_XS", DType::IQ4_XS},
    GgufType{24, "I8", DType::I8},
    GgufType{25, "I16", DType::I16},
    GgufType{26, "I32", DType::I32},
    GgufType{27, "I64", DType::I64},
    GgufType{28, "F64", DType::F64},
    GgufType{29, "IQ1_M"},
    GgufType{30, "BF16", DType::BF16},
    GgufType{34, "TQ1_0"},
    GgufType{35, "TQ2_0"},
    GgufType{39, "MXFP4", DType::MXFP4},
    GgufType{40, "NVFP4"},
};

std::string supported_gguf_types() {
  std::string list;
  for (const GgufType& type : kGgufTypes) {
    if (type.dtype && format_of(*type.dtype).expand) {
      list += (list.empty() ? "" : ", ") + std::string(type.name);
    }
  }
  return list;
}

uint32_t read_version(GgufCursor& cursor) {
  if (cursor.number<uint32_t>("the first bytes") != kGgufMagic) {
    fail(ErrorKind::bad_model, "{}: expected a GGUF file, which begins with GGUF, found another",
         cursor.what());
  }
  const auto version = cursor.number<uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  const bool big_endian = (version & 0xFFFFu) == 0 && version >> 24 != 0;
  fail(ErrorKind::bad_model, "{}: the version: expected 2 or 3, found {}", cursor.what(),
       big_endian ? fmt::format("{} in big-endian order; convert the file to little-endian order",
                                version >> 24)
                  : std::to_string(version));
}

uint64_t alignment_of(const Json& metadata, std::string_view what) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultGgufAlignment;
  const uint64_t alignment = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  if (alignment < 8 || alignment > kMaxGgufAlignment || (alignment & (alignment - 1)) != 0) {
    fail(ErrorKind::bad_model,
         "{}: metadata 'general.alignment': expected a power of two from 8 to {}, found {}", what,
         kMaxGgufAlignment, in_quotes(found->dump()));
  }
  return alignment;
}

DType read_tensor_type(GgufCursor& cursor, const std::string& thing) {
  const auto number = cursor.number<uint32_t>(thing);
  for (const GgufType& type : kGgufTypes) {
    if (type.number != number) continue;
    if (type.dtype) return *type.dtype;
    fail(ErrorKind::bad_model,
         "{}: {}: expected a type among {}, found {}; quantise it with a "
         "supported type",
         cursor.what(), thing, supported_gguf_types(), type.name);
  }
  fail(ErrorKind::bad_model, "{}: {}: expected a type among {}, found number {}", cursor.what(),
       thing, supported_gguf_types(), number);
}

Shape read_shape(GgufCursor& cursor, const std::string& thing) {
  const auto rank = cursor.number<uint32_t>(thing);
  if (rank > kMaxGgufRank) {
    fail(ErrorKind::bad_model, "{}: {}: expected at most {} dimensions, found {}", cursor.what(),
         thing, kMaxGgufRank, rank);
  }
  Shape shape(rank);
  for (size_t i = rank; i-- > 0;) {  // files have the innermost dimension first
    const auto dimension = cursor.number<uint64_t>(thing);
    if (dimension > static_cast<uint64_t>(INT64_MAX)) {
      fail(ErrorKind::bad_model, "{}: {}: expected dimensions below 2^63, found {}", cursor.what(),
           thing, dimension);
    }
    shape[i] = static_cast<int64_t>(dimension);
  }
  return shape;
}

// An entry whose offset counts from the beginning of the data.
TensorEntry read_tensor(GgufCursor& cursor, uint64_t index) {
  TensorEntry entry;
  entry.name = cursor.text(fmt::format("the name of tensor {}", index), 4096);
  const std::string thing = fmt::format("tensor {}", in_quotes(entry.name));
  entry.shape = read_shape(cursor, thing);
  entry.dtype = read_tensor_type(cursor, thing);
  entry.offset = cursor.number<uint64_t>(thing);
  if (!byte_count(entry.shape, entry.dtype, &entry.bytes)) {
    const WeightFormat& format = format_of(entry.dtype);
    const std::string why = is_packed(entry.dtype) ? why_not_packed(format, entry.shape) : "";
    fail(ErrorKind::bad_model, "{}: {}: expected a shape that {} can have, found {}{}",
         cursor.what(), thing, format.name, format_shape(entry.shape),
         why.empty() ? ": more than 2^64 bytes" : ": " + why);
  }
  return entry;
}

bool align_up(uint64_t value, uint64_t alignment, uint64_t* aligned) {
  if (!add_checked(value, alignment - 1, aligned)) return false;
  *aligned &= ~(alignment - 1);
  return true;
}

// Tensors must follow each other in the data, each at the first multiple of the alignment after
// the one before, and the file must end with the last, padding aside.
void check_places(const GgufFile& file, uint64_t data_bytes, uint64_t alignment,
                  std::string_view what) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& entry : file.tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = 0;
  uint64_t next = 0;
  for (const TensorEntry* entry : sorted) {
    if (entry->offset != next) {
      fail(ErrorKind::bad_model,
           "{}: tensor {}: expected it to begin at data offset {}, after the one before and at a "
           "multiple of {}, found {}",
           what, in_quotes(entry->name), next, alignment, entry->offset);
    }
    if (!add_checked(entry->offset, entry->bytes, &end) || end > data_bytes ||
        !align_up(end, alignment, &next)) {
      fail(
          ErrorKind::bad_model,
          "{}: tensor {}: expected {} bytes at data offset {}, found {} bytes of data in the file; "
          "is the file cut short?",
          what, in_quotes(entry->name), entry->bytes, entry->offset, data_bytes);
    }
  }
  if (data_bytes > next) {
    fail(ErrorKind::bad_model, "{}: expected the last tensor to end the file, found {} bytes more",
         what, data_bytes - next);
  }
}

void refuse_tensors_twice(const GgufFile& file, std::string_view what) {
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : file.tensors) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  fail(ErrorKind::bad_model, "{}: tensor {}: expected it once, found it twice", what,
       in_quotes(*twice));
}

GgufFile read_header(GgufCursor cursor) {
  GgufFile file;
  file.version = read_version(cursor);
  const uint64_t tensors =
      cursor.count("the number of tensors", kLeastTensorBytes, kMaxGgufTensors);
  const uint64_t pairs = cursor.count("the number of keys", kLeastPairBytes, kMaxGgufKeys);
  file.metadata = read_gguf_metadata(cursor, pairs);
  const uint64_t alignment = alignment_of(file.metadata, cursor.what());
  for (uint64_t i = 0; i < tensors; ++i) file.tensors.push_back(read_tensor(cursor, i));
  refuse_tensors_twice(file, cursor.what());
  uint64_t data_begin = 0;
  if (!align_up(cursor.position(), alignment, &data_begin)) data_begin = UINT64_MAX;
  const uint64_t data_bytes = cursor.file_bytes() - std::min(data_begin, cursor.file_bytes());
  check_places(file, data_bytes, alignment, cursor.what());
  for (TensorEntry& entry : file.tensors) entry.offset += data_begin;
  return file;
}

}  // namespace

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code error;
  return path.extension() == kGgufSuffix && !std::filesystem::is_directory(path, error);
}

GgufFile read_gguf(const File& file, std::string_view what) {
  return read_header(
      GgufCursor([&](uint64_t offset, std::span<std::byte> out) { file.read_at(offset, out); },
                 file.size(), what));
}

GgufFile parse_gguf(std::span<const std::byte> file, std::string_view what) {
  return read_header(GgufCursor(
      [&](uint64_t offset, std::span<std::byte> out) {
        std::memcpy(out.data(), file.data() + offset, out.size());
      },
      file.size(), what));
}

GgufSplit gguf_split(const GgufFile& file, std::string_view what) {
  constexpr int64_t kMostShards = 65'535;  // by the type of the count
  const JsonFields fields(file.metadata, std::string(what));
  GgufSplit split;
  split.count = fields.integer_or("split.count", 1, 0, kMostShards);
  if (split.count == 0) split.count = 1;  // some writers state 0 for a whole model
  split.number = fields.integer_or("split.no", 0, 0, split.count - 1);
  split.tensors = fields.integer_or("split.tensors.count", 0, 0, INT64_MAX);
  return split;
}

}  // namespace klotski
