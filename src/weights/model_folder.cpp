#include "weights/model_folder.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "weights/gguf.h"
#include "weights/hub_cache.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

bool is_utf8(std::string_view text) {
  try {
    Json(text).dump();  // the library refuses to write other bytes
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

void check_text(std::string_view model) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (model.empty() || std::any_of(model.begin(), model.end(), is_control) || !is_utf8(model)) {
    fail(ErrorKind::bad_model,
         "model {}: expected a folder, a GGUF file, a bundled name or a repository id in UTF-8 "
         "without control characters",
         path_in_quotes(model));
  }
}

// The folder of the library that this code is in; none where it is part of the program.
std::optional<fs::path> library_folder() {
  Dl_info code{};
  if (::dladdr(reinterpret_cast<const void*>(&is_utf8), &code) == 0) return std::nullopt;
  const fs::path file = code.dli_fname;
  if (!file.is_absolute() || file.extension() != ".so") return std::nullopt;
  return file.parent_path();
}

// The folders that may hold bundled models, the user's choice first.
std::vector<fs::path> bundle_folders() {
  std::vector<fs::path> folders;
  const char* chosen = std::getenv("KLOTSKI_MODELS");
  if (chosen != nullptr && *chosen != '\0') folders.emplace_back(chosen);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path folder = program.parent_path();
    folders.push_back((folder / "../../models").lexically_normal());
    folders.push_back((folder / "../share/klotski/models").lexically_normal());
    folders.push_back(folder / "models");  // the program in a Python package
  }
  if (const auto folder = library_folder()) folders.push_back(*folder / "models");
  folders.emplace_back(KLOTSKI_SOURCE_MODELS);
  return folders;
}

std::optional<fs::path> find_bundled(std::string_view name, std::vector<std::string>* searched) {
  if (name == "." || name == ".." || name.find('/') != std::string_view::npos) return std::nullopt;
  const std::string_view folder_name = name == "tiny" ? "tiny-mixtral" : name;
  std::error_code error;
  for (const fs::path& folder : bundle_folders()) {
    if (fs::is_directory(folder / folder_name, error)) return folder / folder_name;
    searched->push_back(path_in_quotes(folder));
  }
  return std::nullopt;
}

std::optional<fs::path> find_cached(const HubModel& model, std::vector<std::string>* searched) {
  const auto cache = hub_cache_folder();
  if (!cache) {
    searched->push_back("no Hugging Face cache (none of HF_HUB_CACHE, HF_HOME, HOME is set)");
    return std::nullopt;
  }
  const auto found = find_in_hub_cache(*cache, model);
  if (!found) searched->push_back(path_in_quotes(*cache));
  return found;
}

// Refuses a folder that holds a model only as GGUF files: it may hold several of them.
fs::path with_config(const fs::path& folder) {
  if (has_entry(folder, "config.json")) return folder;
  fs::path first;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (is_gguf_file(path) && (first.empty() || path < first)) first = path;
  }
  if (first.empty()) return folder;
  fail(ErrorKind::bad_model,
       "{}: expected a folder with config.json, found only GGUF files; name its .gguf file, for "
       "instance {}",
       path_in_quotes(folder), path_in_quotes(first));
}

}  // namespace

fs::path find_model(std::string_view model) {
  check_text(model);
  std::error_code error;
  const fs::path path(model);
  if (fs::is_directory(path, error)) return with_config(path);
  if (fs::exists(path, error)) {
    if (is_gguf_file(path)) return path;
    fail(ErrorKind::bad_model,
         "{}: expected the folder of a model or a *.gguf file, found a file of another name",
         path_in_quotes(path));
  }
  std::vector<std::string> searched;
  if (auto found = find_bundled(model, &searched)) return with_config(*found);
  const auto hub_model = parse_hub_model(model);
  if (!hub_model) {
    fail(ErrorKind::bad_model,
         "model {}: not a folder or a GGUF file, nor a bundled name or a repository id such as "
         "org/name",
         path_in_quotes(model));
  }
  if (auto found = find_cached(*hub_model, &searched)) return with_config(*found);
  fail(ErrorKind::bad_model,
       "model {}: not a folder or a GGUF file, and not found in {}; to fetch it from Hugging Face: "
       "hf download "
       "{}{}",
       path_in_quotes(model), fmt::join(searched, ", "), hub_model->id,
       hub_model->revision == "main" ? "" : " --revision " + hub_model->revision);
}

bool is_tokenizer_file(const fs::path& name) {
  constexpr std::array<std::string_view, 7> kNames = {
      "tokenizer.json",          "tokenizer.model",   "tokenizer_config.json",
      "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
      "chat_template.json"};
  const fs::path plain = name.extension() == ".gz" ? name.stem() : name;
  return plain.extension() == ".tiktoken" ||
         std::find(kNames.begin(), kNames.end(), plain.native()) != kNames.end();
}

}  // namespace klotski
