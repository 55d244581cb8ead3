#include "kernels/cpu/multiply.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/error.h"

namespace klotski::cpu {

const Products& products_for(const Kernels& kernels, WeightType type, Precision precision) {
  const bool rounded = type == WeightType::bf16 && rounds_inputs(kernels, precision);
  return rounded ? *kernels.bf16 : kernels.f32;
}

namespace {

struct FreeAligned {
  void operator()(std::byte* data) const {
    ::operator delete[](data, std::align_val_t(kCacheLine));
  }
};

struct Area {
  std::unique_ptr<std::byte[], FreeAligned> data;
  int64_t bytes = 0;
};

using Areas = std::array<Area, static_cast<size_t>(ScratchUse::count_)>;

// Not thread_local: where memory is short, registering the destructor of such a variable ends the
// process.
Areas& areas_of_this_thread() {
  static const pthread_key_t kKey = [] {
    pthread_key_t key = 0;
    const int error =
        ::pthread_key_create(&key, [](void* areas) { delete static_cast<Areas*>(areas); });
    if (error != 0) fail(ErrorKind::does_not_fit, "no room for a thread's own memory");
    return key;
  }();
  if (void* areas = ::pthread_getspecific(kKey)) return *static_cast<Areas*>(areas);
  auto made = std::make_unique<Areas>();
  if (::pthread_setspecific(kKey, made.get()) != 0) throw std::bad_alloc();
  return *made.release();
}

}  // namespace

std::byte* scratch(ScratchUse use, int64_t bytes) {
  Area& area = areas_of_this_thread()[static_cast<size_t>(use)];
  if (area.bytes < bytes) {
    area = {};  // gives its memory back before more is taken
    area.data.reset(static_cast<std::byte*>(
        ::operator new[](static_cast<size_t>(bytes), std::align_val_t(kCacheLine))));
    area.bytes = bytes;
  }
  return area.data.get();
}

namespace {

template <typename Pointer, typename R>
std::vector<Pointer> pointers(R rows, std::span<const int32_t> chosen, int64_t first,
                              int64_t count) {
  std::vector<Pointer> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = chosen.empty() ? first + i : chosen[static_cast<size_t>(first + i)];
    result[static_cast<size_t>(i)] = rows.row(row);
  }
  return result;
}

}  // namespace

std::vector<const float*> row_pointers(ConstRows rows, std::span<const int32_t> chosen,
                                       int64_t first, int64_t count) {
  return pointers<const float*>(rows, chosen, first, count);
}

std::vector<float*> row_pointers(Rows rows, std::span<const int32_t> chosen, int64_t first,
                                 int64_t count) {
  return pointers<float*>(rows, chosen, first, count);
}

void pack_rows(const Products& products, std::byte* blocks, std::span<const float* const> rows,
               int64_t width, int64_t begin, int64_t end) {
  for (int64_t block = 0; block < blocks_of(std::ssize(rows)); ++block) {
    const auto in_block = rows_of_blocks(rows, block, block + 1);
    products.pack({.block = blocks + block * products.block_bytes(width),
                   .rows = in_block.data(),
                   .count = std::ssize(in_block),
                   .width = width,
                   .begin = begin,
                   .end = end});
  }
}

void check_order(const Products& products, const WeightMatrix& weight) {
  if (weight.arranged && !products.arrangement) {
    fail(ErrorKind::internal, "arranged weights reached products that read rows");
  }
  if (weight.arranged && weight.row_bytes != weight.width * element_bytes(weight.type)) {
    fail(ErrorKind::internal, "arranged weights with gaps reached a kernel");
  }
}

namespace {

// Bytes of expanded weights that few rows are multiplied by at a time: they stay in the first-level
// cache.
constexpr int64_t kFewRowsExpandedBytes = 32 * 1024;
constexpr int64_t kLeastExpandedOutputs = 8;

// The outputs of a strip whose weights are expanded together: all of them for many rows, which use
// every weight often.
int64_t outputs_expanded_together(const Strip& strip, int64_t row_bytes) {
  if (strip.rows > kBlockRows) return strip.outputs;
  const int64_t outputs = kFewRowsExpandedBytes / row_bytes;
  return std::max(outputs / kLeastExpandedOutputs, int64_t{1}) * kLeastExpandedOutputs;
}

// Multiplies a strip of weights from row `first` on, expanded some outputs at a time.
void multiply_expanded(const Machine& with, const Products& products, Strip strip,
                       const WeightMatrix& weight, int64_t first) {
  const int64_t bytes = element_bytes(weight.type);
  strip.weight_stride = expanded_stride(strip.width, bytes);
  strip.compact_header = 0;
  strip.first_column = 0;
  const int64_t together = outputs_expanded_together(strip, strip.weight_stride * bytes);
  std::byte* out = scratch(ScratchUse::expanded,
                           std::min(together, strip.outputs) * strip.weight_stride * bytes);
  strip.weight = out;
  const int64_t end = first + strip.outputs;
  for (; first < end; first += together, strip.out_offset += together) {
    strip.outputs = std::min(together, end - first);
    weight.format->expand(with.kernels,
                          {*weight.view, first, strip.outputs, out, strip.weight_stride});
    products.multiply(strip);
  }
}

}  // namespace

void multiply(const Machine& with, const Products& products, const StripOutputs& outputs,
              const std::byte* blocks, const WeightMatrix& weight, const std::byte* next) {
  Strip strip = {.out = outputs.out.data(),
                 .out_offset = outputs.out_offset,
                 .blocks = blocks,
                 .rows = static_cast<int64_t>(outputs.out.size()),
                 .width = weight.width,
                 .weight = weight.row(outputs.first),
                 .weight_stride = weight.row_bytes,
                 .type = weight.type,
                 .arranged = weight.arranged,
                 .compact_header = weight.header_bytes,
                 .first_column = weight.first_column,
                 .outputs = outputs.count,
                 .scratch = scratch(ScratchUse::strip, kStripScratchBytes),
                 .next = next};
  if (!weight.format->reads_stored(products)) {
    return multiply_expanded(with, products, strip, weight, outputs.first);
  }
  if (weight.format->plain) strip.weight_stride /= element_bytes(weight.type);
  products.multiply(strip);
}

int64_t strip_outputs(const Machine& with, const Products& products, const WeightMatrix& weight,
                      int64_t rows) {
  if (rows <= kBlockRows) return kColumnStep;
  const int64_t outputs = weight.outputs;
  // Outputs that the threads could compute while the slowest one finishes its strips of this size.
  const auto lost = [&](int64_t strip) {
    const int64_t threads = with.pool.threads();
    const int64_t strips = (outputs + strip - 1) / strip;
    return (strips + threads - 1) / threads * threads * strip - outputs;
  };
  int64_t strip = weight.format->reads_stored(products)
                      ? kStripOutputs
                      : most_expanded_outputs(weight.width, element_bytes(weight.type));
  while (strip > kColumnStep && lost(strip) > outputs / 20) strip -= kColumnStep;
  return strip;
}

}  // namespace klotski::cpu
