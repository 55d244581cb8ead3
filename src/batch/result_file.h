#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/written_file.h"

namespace klotski {

// A file of results, which is made of the journal's rows: lines that an earlier run has written are
// compared with these and kept as far as both agree. Pipes and devices are written to as they are.
class ResultFile {
 public:
  enum class Writing {
    itself,
    beside,  // under another name until it is complete: an older file stays until then
  };

  // "-" is standard output. Refuses (usage) what cannot be written and a file that another process
  // has locked.
  ResultFile(const std::filesystem::path& path, Writing writing);

  // Whether a job can go on with the file after a crash: neither a pipe nor a device.
  bool lasts() const { return lasts_; }

  // Adds a line with its end, which flush() may still have to write.
  void put(std::string_view line);
  // The lines of earlier runs are complete: cuts off what the file has beyond them.
  void settle();
  uint64_t waiting_bytes() const { return waiting_.size(); }
  // Writes all lines. Where this fails for want of space it may be called again.
  void flush();
  // Waits until the disk has the file, and gives it its name.
  void finish();
  // Removes a file without results.
  void discard();

 private:
  bool agrees(std::string_view line) const;

  std::filesystem::path path_;
  WrittenFile file_;
  bool lasts_;
  bool comparing_;      // lines so far were found in the file
  uint64_t there_ = 0;  // bytes that the file had at first
  uint64_t size_ = 0;   // bytes written or found
  std::string waiting_;
};

// The name of a file of results that is not complete yet.
std::filesystem::path beside(const std::filesystem::path& path);

// Whether results under this name last: it is new or a regular file. "-" is none.
bool can_last(const std::filesystem::path& path);

}  // namespace klotski
