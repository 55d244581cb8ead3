#include "synth/synth.h"

#include <vector>

#include "base/error.h"
#include "model/counts.h"
#include "model/stored_tensors.h"
#include "synth/random_model.h"
#include "synth/stored_tensor.h"
#include "synth/tensor_fill.h"
#include "tensor/format.h"
#include "weights/new_folder.h"

namespace klotski {

SynthReport synthesise(const SynthOptions& options,
                       const std::function<void(uint64_t done, uint64_t total)>& progress,
                       uint64_t max_shard_bytes) {
  const RandomModel made = random_model(options);
  const ModelDescription& model = made.description;
  if (format_of(made.dtype).is_file_type && is_packed(made.dtype)) {
    fail(ErrorKind::usage,
         "safetensors files have no weights of {}; expected another format, or the shape as "
         "--synthetic of the command that measures",
         dtype_name(made.dtype));
  }
  SynthReport report{.folder = {},
                     .family = model.family,
                     .parameters = count_parameters(model).total(),
                     .weight_bytes = count_weight_bytes(model, made.dtype),
                     .share = made.share};
  NewFolder folder(options.folder);
  report.folder = folder.name();
  folder.require_space(report.weight_bytes);
  write_files(made, folder.files());

  const std::vector<ModelTensor> tensors = tensors_in_order(model, made.dtype);
  std::vector<NewTensor> stored;
  for (const ModelTensor& tensor : tensors) {
    stored.push_back(tensor_in_file(tensor.spec, tensor.dtype));
  }
  const TensorFill fill(model, options.seed, made.share);
  uint64_t done = 0;
  report.weight_files = write_checkpoint(
      folder.files(), stored,
      [&](size_t tensor, uint64_t offset, std::span<std::byte> out) {
        fill_stored(fill, tensors[tensor], offset, out);
      },
      [&](uint64_t bytes) {
        done += bytes;
        progress(done, report.weight_bytes);
      },
      max_shard_bytes);
  folder.publish();
  return report;
}

}  // namespace klotski
