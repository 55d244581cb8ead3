#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// The results of a job, appended line by line. Each line is one write, so that a process that is
// killed leaves whole lines; a write that fails half-way is taken back.
class ResultFile {
 public:
  // Refuses (usage) a file that is there already, unless told to overwrite it, and the file that
  // `input_descriptor` reads. Pipes and devices are written to as they are.
  ResultFile(const std::filesystem::path& path, bool overwrite, int input_descriptor);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  void append(std::string_view line);
  // Makes sure that all written results are on the disk.
  void flush();

 private:
  void open(bool overwrite, int input_descriptor);

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool regular_ = true;
};

}  // namespace klotski
