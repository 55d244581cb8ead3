#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace klotski {

// A new file written at given places. A full disk is an error of kind does_not_fit, any other
// failure one of kind internal; the file stays as it is then, for the caller to remove.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);  // must not exist
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Writes bytes at an offset. May be called from several threads at once, for different places.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);

  // Waits until the disk has it, since only then every failure is known, and closes.
  void finish();

 private:
  [[noreturn]] void fail_writing(int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

void write_text_file(const std::filesystem::path& path, std::string_view text);  // must not exist

}  // namespace klotski
