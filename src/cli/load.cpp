#include "cli/load.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "model/config.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

// Activations, the tokenizer and the program itself.
constexpr uint64_t kMarginBytes = 128 * kMiB;

}  // namespace

OpenedModel open_model(const std::string& model) {
  const std::filesystem::path folder = find_model(model);
  return {
      .folder = folder, .description = read_config(folder), .checkpoint = Checkpoint::open(folder)};
}

ResidentModel load_weights(const OpenedModel& model, uint64_t kv_bytes) {
  const uint64_t weights = ResidentModel::weight_bytes(model.description, model.checkpoint);
  const uint64_t needed = weights + kv_bytes + kMarginBytes;
  const uint64_t available = available_memory_bytes();
  if (needed > available) {
    fail(ErrorKind::does_not_fit,
         "{}: needs {} (weights {}, KV cache {}, margin {}), {} is free: {} too little",
         in_quotes(model.folder.native(), 300), format_bytes(needed), format_bytes(weights),
         format_bytes(kv_bytes), format_bytes(kMarginBytes), format_bytes(available),
         format_bytes(needed - available));
  }
  StatusLine status("loading weights", "bytes");
  return ResidentModel(model.description, model.checkpoint,
                       [&](uint64_t done, uint64_t total) { status.update(done, total); });
}

void add_kernels_option(CLI::App& command, std::string& kernels) {
  command.add_option("--kernels", kernels, "Arithmetic: cpu (default), or the slow reference")
      ->check(CLI::IsMember({"cpu", "reference"}));
}

const Ops& ops_named(const std::string& kernels) {
  return kernels == "reference" ? reference_ops() : cpu_ops();
}

}  // namespace klotski
