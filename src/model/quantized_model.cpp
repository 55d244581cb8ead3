#include "model/quantized_model.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/new_file.h"
#include "model/new_weights.h"
#include "model/resumed_run.h"
#include "model/unit_layout.h"
#include "tensor/hqq.h"
#include "weights/new_folder.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr int kSolverVersion = 1;  // rises when equal numbers become other bytes
constexpr int kAttentionBits = 4;

bool is_quantizable(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

// Gives the tensors to be quantised their new types.
class QuantizeMarker {
 public:
  QuantizeMarker(const ModelDescription& model, const TensorSource& checkpoint,
                 std::vector<NewWeight>& weights, QuantizeCounts& counts)
      : model_(model), checkpoint_(checkpoint), weights_(weights), counts_(counts) {}

  void mark(UnitKind kind, DType dtype) {
    for (const WeightUnit& unit : units_of(model_, kind)) {
      for (const TensorSpec& spec : unit_tensors(model_, unit)) {
        if (spec.shape.size() == 2 && seen_.insert(spec.name).second) mark(spec, dtype);
      }
    }
  }

 private:
  void mark(const TensorSpec& spec, DType dtype) {
    const TensorEntry* entry = checkpoint_.find(spec.name);
    if (entry == nullptr) {
      ++counts_.packed_before;
    } else if (!is_quantizable(entry->dtype)) {
      ++counts_.other_types;
    } else if (spec.slice && spec.slice->transposed) {
      ++counts_.transposed;
    } else if (!becomes_smaller(*entry, dtype)) {
      ++counts_.not_smaller;
    } else {
      ++counts_.quantized;
      weights_[static_cast<size_t>(entry - checkpoint_.tensors().data())].dtype = dtype;
    }
  }

  const ModelDescription& model_;
  const TensorSource& checkpoint_;
  std::vector<NewWeight>& weights_;
  QuantizeCounts& counts_;
  std::set<std::string> seen_;  // a stored tensor may hold several experts
};

std::vector<NewWeight> mark_weights(const ModelDescription& model, const TensorSource& checkpoint,
                                    const QuantizeSettings& settings, QuantizeCounts& counts) {
  const UnitLayouts checked(model, checkpoint);  // every tensor is as described
  std::vector<NewWeight> weights = weights_as_they_are(checkpoint);
  QuantizeMarker marker(model, checkpoint, weights, counts);
  const DType type = hqq_type(settings.bits, settings.group);
  marker.mark(UnitKind::expert, type);
  marker.mark(UnitKind::dense, type);
  if (settings.attention) {
    marker.mark(UnitKind::attention, hqq_type(kAttentionBits, settings.group));
  }
  if (counts.quantized == 0) {
    fail(ErrorKind::usage,
         "{}: expected F32, F16 or BF16 matrices of experts or dense feed-forward parts{} to "
         "quantise, found {}",
         path_in_quotes(checkpoint.folder()), settings.attention ? ", or of attention," : "",
         counts.left() == 0 ? "none" : why_left(counts));
  }
  order_for_files(weights);
  return weights;
}

// All that the bytes of a quantised model depend on, as text.
std::string run_identity(const TensorSource& checkpoint, const QuantizeSettings& settings,
                         uint64_t max_shard_bytes) {
  Json files = Json::array();
  for (uint32_t shard = 0; shard < checkpoint.shard_count(); ++shard) {
    const auto file = checkpoint.file(shard);
    const auto modified = fs::last_write_time(file->path()).time_since_epoch().count();
    files.push_back({file->path().native(), file->size(), static_cast<int64_t>(modified)});
  }
  const Json identity = {{"solver", kSolverVersion},
                         {"bits", settings.bits},
                         {"group", settings.group},
                         {"attention", settings.attention},
                         {"shard", max_shard_bytes},
                         {"files", std::move(files)},
                         {"config", read_in_folder(checkpoint.folder(), "config.json", kMiB)}};
  return identity.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void replace_file(const fs::path& path, const std::string& text) {
  NewFile file(path);
  file.write(text);
  file.commit();
}

// The errors of tensors while pieces of them are made on several threads. Pieces are summed in the
// order of their offsets, so that the sums do not depend on the threads.
class PieceErrors {
 public:
  void add(size_t tensor, uint64_t offset, const SquaredErrors& errors) {
    const std::lock_guard lock(mutex_);
    pieces_[tensor][offset] = errors;
  }
  // The relative error of a tensor whose pieces are all there, which are forgotten.
  double take(size_t tensor) {
    SquaredErrors sums;
    for (const auto& [offset, errors] : pieces_[tensor]) sums.add(errors);
    pieces_.erase(tensor);
    return sums.relative();
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::map<uint64_t, SquaredErrors>> pieces_;
};

class QuantizeWriter {
 public:
  QuantizeWriter(const TensorSource& checkpoint, const std::vector<NewWeight>& weights,
                 fs::path folder, QuantizeReport& report, const QuantizeProgress& progress)
      : checkpoint_(checkpoint),
        weights_(weights),
        folder_(std::move(folder)),
        report_(report),
        progress_(progress),
        record_(read_quantization_record(folder_)) {
    record_.errors.merge(read_quantization_record(checkpoint.folder()).errors);
  }

  void write(uint64_t max_shard_bytes) {
    const ShardEvents events = {
        .kept = [&](uint64_t bytes) { keep(bytes); },
        .complete = [&](size_t first, size_t count) { complete(first, count); }};
    report_.weight_files = write_checkpoint(
        folder_, in_files(weights_),
        [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
          const SquaredErrors made = make_bytes(checkpoint_, weights_[tensor], offset, out);
          if (weights_[tensor].is_packed_anew()) errors_.add(tensor, offset, made);
        },
        [&](uint64_t bytes) { advance(bytes); }, max_shard_bytes, events);
    for (const NewWeight& weight : weights_) {
      if (weight.is_packed_anew()) report_.errors.add(error_of(weight.entry->name));
    }
  }

 private:
  void keep(uint64_t bytes) {
    report_.bytes_kept += bytes;
    advance(bytes);
  }
  void advance(uint64_t bytes) {
    done_ += bytes;
    progress_(done_, report_.bytes_after, report_.bytes_kept);
  }
  double error_of(const std::string& tensor) const {
    const auto found = record_.errors.find(tensor);
    if (found == record_.errors.end()) {
      fail(ErrorKind::bad_model, "{}: expected the error of {}; remove {} to begin anew",
           path_in_quotes(folder_ / kQuantizationFile), in_quotes(tensor), path_in_quotes(folder_));
    }
    return found->second;
  }
  // The record is complete before the shard is: a run that goes on finds both.
  void complete(size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      if (weights_[i].is_packed_anew()) record_.errors[weights_[i].entry->name] = errors_.take(i);
    }
    replace_file(folder_ / kQuantizationFile, record_.as_text());
  }

  const TensorSource& checkpoint_;
  const std::vector<NewWeight>& weights_;
  fs::path folder_;
  QuantizeReport& report_;
  const QuantizeProgress& progress_;
  QuantizationRecord record_;
  PieceErrors errors_;
  uint64_t done_ = 0;
};

}  // namespace

std::string why_left(const QuantizeCounts& counts) {
  return counted_reasons({{counts.packed_before, "packed already"},
                          {counts.other_types, "of other types"},
                          {counts.not_smaller, "no smaller when quantised"},
                          {counts.transposed, "stored column by column"}});
}

QuantizeReport quantize_model(const ModelDescription& model, const TensorSource& checkpoint,
                              const fs::path& out, const QuantizeSettings& settings,
                              const QuantizeProgress& progress, uint64_t max_shard_bytes) {
  require_safetensors(checkpoint);
  QuantizeReport report;
  report.bytes_before = checkpoint.total_bytes();
  const std::vector<NewWeight> weights = mark_weights(model, checkpoint, settings, report.counts);
  report.bytes_after = bytes_of(weights);
  OtherFiles files = list_other_files(checkpoint);
  std::erase(files.names, kQuantizationFile);  // written anew
  NewFolder folder(out, Leftovers::kept);
  report.folder = folder.name();
  const uint64_t there =
      take_over_files(folder, run_identity(checkpoint, settings, max_shard_bytes));
  const uint64_t needed = report.bytes_after + files.bytes;
  folder.require_space(needed - std::min(there, needed));
  copy_files(files, checkpoint.folder(), folder.files());
  report.not_copied = std::move(files.left_out);
  QuantizeWriter(checkpoint, weights, folder.files(), report, progress).write(max_shard_bytes);
  publish_run(folder);
  return report;
}

}  // namespace klotski
