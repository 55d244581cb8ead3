#include "model/compact_model.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "model/new_weights.h"
#include "model/stored_tensors.h"
#include "model/unit_layout.h"
#include "tensor/compact.h"
#include "tensor/format.h"
#include "weights/front_to_back.h"
#include "weights/new_folder.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCheckedBytes = 1 * kMiB;  // read at a time

// All tensors, those that might become compact marked.
std::vector<NewWeight> mark_candidates(const ModelDescription& model,
                                       const TensorSource& checkpoint, CompactCounts& counts) {
  const UnitLayouts checked(model, checkpoint);  // every tensor is as described
  std::vector<NewWeight> weights = weights_as_they_are(checkpoint);
  for (const UnitKind kind : {UnitKind::expert, UnitKind::dense}) {
    for (const WeightUnit& unit : units_of(model, kind)) {
      for (const TensorSpec& spec : unit_tensors(model, unit)) {
        if (spec.shape.size() != 2) continue;  // biases
        const TensorEntry* entry = checkpoint.find(spec.name);
        if (entry == nullptr) {
          const DType stored = find_stored(checkpoint, kind, spec, model.stated_formats).dtype;
          ++(format_of(stored).lossy ? counts.not_bf16 : counts.compact_before);
        } else if (entry->dtype != DType::BF16) {
          ++counts.not_bf16;
        } else if (entry->shape.size() != 2 || (spec.slice && spec.slice->transposed) ||
                   !becomes_smaller(*entry, kCompactType)) {
          ++counts.not_smaller;
        } else {
          weights[static_cast<size_t>(entry - checkpoint.tensors().data())].dtype = kCompactType;
        }
      }
    }
  }
  order_for_files(weights);
  return weights;
}

bool any_packed_anew(const std::vector<NewWeight>& weights) {
  return std::any_of(weights.begin(), weights.end(),
                     [](const NewWeight& weight) { return weight.is_packed_anew(); });
}

[[noreturn]] void refuse_nothing(const TensorSource& checkpoint, const CompactCounts& counts) {
  fail(ErrorKind::usage,
       "{}: expected BF16 matrices of experts or dense feed-forward parts that can be compact, "
       "found {}",
       path_in_quotes(checkpoint.folder()), counts.left() == 0 ? "none" : why_left(counts));
}

bool can_be_compact(const TensorSource& checkpoint, const NewWeight& weight) {
  const auto columns = static_cast<size_t>(weight.columns());
  const auto row_bytes = static_cast<uint64_t>(bytes_per_row(DType::BF16, weight.columns()));
  const auto at_once = static_cast<int64_t>(std::max<uint64_t>(1, kCheckedBytes / row_bytes));
  std::vector<uint16_t> plain;
  std::vector<std::byte> compact(static_cast<size_t>(compact_row_bytes(weight.columns())));
  for (int64_t row = 0; row < weight.rows(); row += at_once) {
    plain.resize(static_cast<size_t>(std::min(at_once, weight.rows() - row)) * columns);
    read_rows(checkpoint, *weight.entry, row, std::as_writable_bytes(std::span(plain)));
    for (size_t at = 0; at < plain.size(); at += columns) {
      if (!compact_row(std::span(plain).subspan(at, columns), compact.data())) return false;
    }
  }
  return true;
}

// Unmarks tensors of which a row cannot be compact.
void check_candidates(const TensorSource& checkpoint, std::vector<NewWeight>& weights,
                      CompactCounts& counts, const CompactProgress& progress) {
  std::vector<NewWeight*> candidates;
  uint64_t total = 0;
  for (NewWeight& weight : weights) {
    if (!weight.is_packed_anew()) continue;
    candidates.push_back(&weight);
    total += weight.entry->bytes;
  }
  std::mutex mutex;  // guards the next members
  uint64_t done = 0;
  front_to_back(candidates.size(), [&](size_t i) {
    NewWeight& weight = *candidates[i];
    const bool compact = can_be_compact(checkpoint, weight);
    if (!compact) weight.dtype = weight.entry->dtype;
    const std::lock_guard lock(mutex);
    ++(compact ? counts.compact : counts.too_different);
    done += weight.entry->bytes;
    progress(CompactStep::checking, done, total);
  });
}

}  // namespace

std::string why_left(const CompactCounts& counts) {
  return counted_reasons({{counts.compact_before, "compact already"},
                          {counts.not_bf16, "not BF16"},
                          {counts.not_smaller, "no smaller when compact"},
                          {counts.too_different, "of numbers too different in size"}});
}

std::optional<Checkpoint> packed_in_memory(const ModelDescription& model,
                                           const TensorSource& checkpoint) {
  CompactCounts counts;
  const std::vector<NewWeight> weights = mark_candidates(model, checkpoint, counts);
  // Parts that are joined while they are read arrive at places that only their files know.
  const auto is_joined = [](DType dtype) { return format_of(dtype).join != nullptr; };
  const std::vector<DType>& stated = model.stated_formats;
  if (!any_packed_anew(weights) || std::any_of(stated.begin(), stated.end(), is_joined)) return {};
  std::vector<TensorEntry> entries;
  for (const NewWeight& weight : weights) {
    NewTensor tensor = weight.in_file();
    TensorEntry& entry = entries.emplace_back();
    entry.name = std::move(tensor.name);
    entry.dtype = tensor.dtype;
    entry.shape = std::move(tensor.shape);
  }
  return Checkpoint::described(checkpoint.folder(), std::move(entries));
}

CompactReport compact_model(const ModelDescription& model, const TensorSource& checkpoint,
                            const fs::path& out, const CompactProgress& progress,
                            uint64_t max_shard_bytes) {
  require_safetensors(checkpoint);
  CompactReport report;
  report.bytes_before = checkpoint.total_bytes();
  std::vector<NewWeight> weights = mark_candidates(model, checkpoint, report.counts);
  if (!any_packed_anew(weights)) refuse_nothing(checkpoint, report.counts);
  OtherFiles files = list_other_files(checkpoint);
  NewFolder folder(out);
  report.folder = folder.name();
  folder.require_space(bytes_of(weights) + files.bytes);  // room for the least it may take; reading
                                                          // takes a while
  copy_files(files, checkpoint.folder(), folder.files());
  report.not_copied = std::move(files.left_out);
  check_candidates(checkpoint, weights, report.counts, progress);
  if (report.counts.compact == 0) refuse_nothing(checkpoint, report.counts);
  report.bytes_after = bytes_of(weights);
  folder.require_space(report.bytes_after);

  order_for_files(weights);
  uint64_t done = 0;
  report.weight_files = write_checkpoint(
      folder.files(), in_files(weights),
      [&](size_t tensor, uint64_t offset, std::span<std::byte> bytes) {
        make_bytes(checkpoint, weights[tensor], offset, bytes);
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
