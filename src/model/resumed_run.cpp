#include "model/resumed_run.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/bytes.h"
#include "base/file.h"
#include "model/quantization_record.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIdentityFile = ".klotski-quantize.json";
constexpr uint64_t kMostIdentityBytes = 16 * kMiB;

bool has_identity(const fs::path& file, const std::string& identity) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(file, error)) &&
         fs::file_size(file, error) == identity.size() &&
         read_text_file(file, kMostIdentityBytes) == identity;
}

}  // namespace

uint64_t take_over_files(NewFolder& folder, const std::string& identity) {
  const fs::path file = folder.files() / kIdentityFile;
  if (!has_identity(file, identity)) {
    folder.clear();
    write_text_file(file, identity);
  }
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.files())) {
    const fs::path name = entry.path().filename();
    if (name == kIdentityFile || name == kQuantizationFile) continue;
    if (name.extension() == ".safetensors" && entry.is_regular_file()) {
      bytes += entry.file_size();
    } else {
      fs::remove_all(entry.path());
    }
  }
  return bytes;
}

void publish_run(NewFolder& folder) {
  folder.publish();
  std::error_code ignored;
  fs::remove(folder.name() / kIdentityFile, ignored);
}

}  // namespace klotski
