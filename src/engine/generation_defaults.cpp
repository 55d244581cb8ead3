#include "engine/generation_defaults.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"

namespace klotski {

SamplingOptions suggested_sampling(const std::filesystem::path& model_folder) {
  SamplingOptions sampling;
  if (!has_entry(model_folder, "generation_config.json")) return sampling;
  const File file = open_in_folder(model_folder, "generation_config.json");
  const std::string what = path_in_quotes(file.path());
  const Json json = parse_json(
      read_text_file(file, 16 * kMiB), what, ErrorKind::bad_model,
      {.wanted = {"repetition_penalty", "do_sample", "temperature", "top_k", "top_p", "min_p"}});
  const JsonFields fields(json, what);
  sampling.repetition_penalty = fields.number_or("repetition_penalty", 1.0, 0.01, 100.0);
  if (!fields.boolean_or("do_sample", false)) return sampling;
  sampling.temperature = fields.number_or("temperature", 1.0, 0.0, 100.0);
  sampling.top_k = fields.integer_or("top_k", 50, 0, 1 << 24);
  sampling.top_p = fields.number_or("top_p", 1.0, 0.0, 1.0);
  sampling.min_p = fields.number_or("min_p", 0.0, 0.0, 1.0);
  return sampling;
}

}  // namespace klotski
