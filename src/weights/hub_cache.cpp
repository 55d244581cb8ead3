#include "weights/hub_cache.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxIdBytes = 96;  // the hub's own limit
constexpr size_t kMaxRevisionBytes = 255;
constexpr size_t kMaxRefFileBytes = 4096;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Letters, digits, '-', '_' and '.', neither end a '-' or '.', no ".." and no "--" inside.
bool is_id_part(std::string_view part) {
  const auto allowed = [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
  };
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), allowed) && !edge(part.front()) &&
         !edge(part.back()) && part.find("..") == std::string_view::npos &&
         part.find("--") == std::string_view::npos;
}

// Branches may have slashes, as in refs/pr/1; every part between them must be a plain name.
bool is_revision(std::string_view revision) {
  if (revision.size() > kMaxRevisionBytes) return false;
  while (true) {
    const size_t slash = revision.find('/');
    const std::string_view part = revision.substr(0, slash);
    const bool plain = std::all_of(part.begin(), part.end(), [](char c) {
      return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '+';
    });
    if (part.empty() || part.front() == '.' || !plain) return false;
    if (slash == std::string_view::npos) return true;
    revision.remove_prefix(slash + 1);
  }
}

bool is_commit(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), is_alphanumeric);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// A variable that is set but empty counts as not set.
std::optional<fs::path> environment_path(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return fs::path(value);
}

std::string read_ref(const fs::path& path) {
  std::string text = read_text_file(path, kMaxRefFileBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  if (!is_commit(text)) {
    fail(ErrorKind::bad_model, "{}: expected a commit such as 1f2e3d, found {}",
         path_in_quotes(path), in_quotes(text));
  }
  return text;
}

}  // namespace

std::optional<HubModel> parse_hub_model(std::string_view text) {
  const size_t at = text.find('@');
  const std::string_view id = text.substr(0, at);
  const std::string_view revision =
      at == std::string_view::npos ? std::string_view("main") : text.substr(at + 1);
  const size_t slash = id.find('/');
  const bool id_is_good = id.size() <= kMaxIdBytes && is_id_part(id.substr(0, slash)) &&
                          (slash == std::string_view::npos || is_id_part(id.substr(slash + 1)));
  if (!id_is_good || !is_revision(revision)) return std::nullopt;
  HubModel model;
  model.id = id;
  model.revision = revision;
  return model;
}

std::optional<fs::path> hub_cache_folder() {
  if (const auto cache = environment_path("HF_HUB_CACHE")) return cache;
  if (const auto cache = environment_path("HUGGINGFACE_HUB_CACHE")) return cache;
  if (const auto home = environment_path("HF_HOME")) return *home / "hub";
  if (const auto cache = environment_path("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  if (const auto home = environment_path("HOME")) return *home / ".cache" / "huggingface" / "hub";
  return std::nullopt;
}

std::optional<fs::path> find_in_hub_cache(const fs::path& cache, const HubModel& model) {
  std::string repository = "models--" + model.id;
  const size_t slash = repository.find('/');
  if (slash != std::string::npos) repository.replace(slash, 1, "--");
  const fs::path folder = cache / repository;
  std::error_code error;
  const fs::path ref = folder / "refs" / model.revision;
  const std::string commit = fs::is_regular_file(ref, error) ? read_ref(ref) : model.revision;
  if (!is_commit(commit)) return std::nullopt;
  const fs::path snapshot = folder / "snapshots" / commit;
  if (!is_folder(snapshot)) return std::nullopt;
  return snapshot;
}

}  // namespace klotski
