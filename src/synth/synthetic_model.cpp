#include "synth/synthetic_model.h"

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/stored_tensors.h"
#include "synth/random_model.h"
#include "synth/synthetic_source.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 200;  // file systems take 255; numbers may have leading zeros

fs::path write_folder(const RandomModel& model, const fs::path& home, const std::string& shape) {
  const fs::path folder = home / shape.substr(0, kMaxNameBytes);
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    fail(ErrorKind::internal, "{}: cannot be made: {}", path_in_quotes(folder), error.message());
  }
  write_files(model, folder);
  return folder;
}

Checkpoint described(const ModelDescription& model, DType dtype, const fs::path& folder) {
  std::vector<TensorEntry> entries;
  for (const ModelTensor& tensor : tensors_in_order(model, dtype)) {
    NewTensor stored = tensor_in_file(tensor.spec, tensor.dtype);
    TensorEntry& entry = entries.emplace_back();
    entry.name = std::move(stored.name);
    entry.dtype = stored.dtype;
    entry.shape = std::move(stored.shape);
  }
  return Checkpoint::described(folder, std::move(entries));
}

}  // namespace

SyntheticModel synthetic_model(const SynthOptions& options) {
  const RandomModel model = random_model(options);
  auto home = std::make_shared<const TemporaryFolder>();
  const fs::path folder = write_folder(model, home->path(), options.shape);
  ModelDescription description = read_config(folder);
  Checkpoint checkpoint = described(description, model.dtype, folder);
  auto source =
      std::make_shared<SyntheticSource>(description, options.seed, model.share, model.dtype);
  return {.home = std::move(home),
          .folder = folder,
          .description = std::move(description),
          .checkpoint = std::move(checkpoint),
          .source = std::move(source)};
}

}  // namespace klotski
