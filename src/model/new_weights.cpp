#include "model/new_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

constexpr uint64_t kNewRowAlignment = 16;  // of rows of any format that is written

// The numbers of a row in the type that a format packs; both are types of plain elements.
void convert_row(const std::byte* row, DType from, DType to, int64_t columns, std::byte* out) {
  if (from == to) {
    std::memcpy(out, row, static_cast<size_t>(bytes_per_row(from, columns)));
    return;
  }
  if (to != DType::F32 || (from != DType::BF16 && from != DType::F16)) {
    fail(ErrorKind::internal, "{} numbers are not made of {}", dtype_name(to), dtype_name(from));
  }
  for (int64_t i = 0; i < columns; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, row + 2 * i, sizeof(bits));
    const float number = from == DType::BF16 ? bf16_to_float(bits) : f16_to_float(bits);
    std::memcpy(out + 4 * i, &number, sizeof(number));
  }
}

SquaredErrors compare(const std::vector<std::byte>& numbers, const std::vector<std::byte>& again) {
  SquaredErrors sums;
  for (size_t at = 0; at < numbers.size(); at += sizeof(float)) {
    float before = 0.0f;
    float after = 0.0f;
    std::memcpy(&before, &numbers[at], sizeof(before));
    std::memcpy(&after, &again[at], sizeof(after));
    const double difference = double{after} - double{before};
    sums.error += difference * difference;
    sums.norm += double{before} * double{before};
  }
  return sums;
}

// Packs one row, and compares it with what it expands to.
class RowPacker {
 public:
  explicit RowPacker(const NewWeight& weight)
      : weight_(weight),
        format_(format_of(weight.dtype)),
        numbers_(static_cast<size_t>(bytes_per_row(format_.values, weight.columns()))),
        again_(numbers_.size()) {}

  SquaredErrors pack(const std::byte* plain, int64_t row, std::byte* out) {
    const int64_t columns = weight_.columns();
    convert_row(plain, weight_.entry->dtype, format_.values, columns, numbers_.data());
    if (!format_.pack(numbers_.data(), columns, out)) {
      fail(ErrorKind::bad_model, "tensor {}: row {} cannot be {}: expected finite numbers",
           in_quotes(weight_.entry->name), row, format_.name);
    }
    const TensorView view{.data = out, .dtype = weight_.dtype, .shape = {1, columns}};
    format_.expand(view, 0, again_.data());
    if (format_.lossy) {
      const SquaredErrors errors = compare(numbers_, again_);
      if (!std::isfinite(errors.error)) {
        fail(ErrorKind::bad_model,
             "tensor {}: row {} cannot be {}: expected numbers that leave room for rounding, found "
             "some near the largest of F32",
             in_quotes(weight_.entry->name), row, format_.name);
      }
      return errors;
    }
    if (numbers_ != again_) {
      fail(ErrorKind::internal, "tensor {}: row {} is not what it was when it is expanded again",
           in_quotes(weight_.entry->name), row);
    }
    return {};
  }

 private:
  const NewWeight& weight_;
  const WeightFormat& format_;
  std::vector<std::byte> numbers_;
  std::vector<std::byte> again_;
};

}  // namespace

int64_t NewWeight::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < entry->shape.size(); ++i) rows *= entry->shape[i];
  return rows;
}

NewTensor NewWeight::in_file() const {
  if (!is_packed_anew()) return {entry->name, entry->dtype, entry->shape};
  const WeightFormat& format = format_of(dtype);
  Shape shape = entry->shape;
  shape.back() = format.row_bytes(columns()) / bytes_per_element(format.file_type);
  return {format.file_name.of(entry->name), format.file_type, std::move(shape)};
}

void require_safetensors(const TensorSource& source) {
  if (!is_gguf_file(source.folder())) return;
  fail(ErrorKind::bad_model, "{}: expected a folder of safetensors to write anew, found GGUF",
       path_in_quotes(source.folder()));
}

std::vector<NewWeight> weights_as_they_are(const TensorSource& source) {
  std::vector<NewWeight> weights;
  for (const TensorEntry& entry : source.tensors()) weights.push_back({&entry, entry.dtype});
  return weights;
}

bool becomes_smaller(const TensorEntry& entry, DType packed) {
  const WeightFormat& format = format_of(packed);
  if (entry.shape.size() < 2) return false;
  const NewWeight weight{&entry, packed};
  return why_not_packed(format, {weight.rows(), weight.columns()}).empty() &&
         format.row_bytes(weight.columns()) < bytes_per_row(entry.dtype, weight.columns());
}

void order_for_files(std::vector<NewWeight>& weights) {
  const auto key = [](const NewWeight& weight) {
    const int alignment = std::countr_zero(bytes_of(weight.in_file()) | kNewRowAlignment);
    return std::tuple(-alignment, weight.entry->shard, weight.entry->offset);
  };
  std::stable_sort(weights.begin(), weights.end(),
                   [&](const NewWeight& a, const NewWeight& b) { return key(a) < key(b); });
}

uint64_t bytes_of(const std::vector<NewWeight>& weights) {
  uint64_t total = 0;
  for (const NewWeight& weight : weights) {
    if (!add_checked(total, bytes_of(weight.in_file()), &total)) {
      fail(ErrorKind::internal, "tensor {} has no size", in_quotes(weight.entry->name));
    }
  }
  return total;
}

std::vector<NewTensor> in_files(const std::vector<NewWeight>& weights) {
  std::vector<NewTensor> tensors;
  for (const NewWeight& weight : weights) tensors.push_back(weight.in_file());
  return tensors;
}

std::string counted_reasons(std::initializer_list<CountedReason> reasons) {
  std::string text;
  for (const auto& [count, why] : reasons) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, why);
  }
  return text;
}

void read_rows(const TensorSource& source, const TensorEntry& entry, int64_t row,
               std::span<std::byte> out) {
  const auto row_bytes = static_cast<uint64_t>(bytes_per_row(entry.dtype, entry.shape.back()));
  source.read_range(entry, static_cast<uint64_t>(row) * row_bytes, out);
}

double SquaredErrors::relative() const { return norm > 0.0 ? std::sqrt(error / norm) : 0.0; }

SquaredErrors make_bytes(const TensorSource& source, const NewWeight& weight, uint64_t offset,
                         std::span<std::byte> out) {
  if (!weight.is_packed_anew()) {
    source.read_range(*weight.entry, offset, out);
    return {};
  }
  const auto packed = static_cast<size_t>(bytes_per_row(weight.dtype, weight.columns()));
  const auto plain = static_cast<size_t>(bytes_per_row(weight.entry->dtype, weight.columns()));
  const auto first = static_cast<int64_t>(offset / packed);
  const size_t rows = out.size() / packed;
  std::vector<std::byte> read(rows * plain);
  read_rows(source, *weight.entry, first, read);
  RowPacker packer(weight);
  SquaredErrors sums;
  for (size_t i = 0; i < rows; ++i) {
    sums.add(packer.pack(&read[i * plain], first + static_cast<int64_t>(i), &out[i * packed]));
  }
  return sums;
}

}  // namespace klotski
