#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/written_file.h"
#include "batch/journal_records.h"

namespace klotski {

// The journal of a job, as a file that only one process has at a time. Rows are collected and
// written with one write and one fsync (commit); a commit that fails may be tried again.
class Journal {
 public:
  // Opens the journal, or makes a new one, and locks it. Refuses (usage) one that another process
  // has locked, and a file that is no journal.
  explicit Journal(const std::filesystem::path& path);
  // A journal without a name, for a job that cannot be resumed: nothing is flushed to the disk.
  Journal();
  // Removes a journal that was never begun.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const std::filesystem::path& path() const { return file_.path(); }
  // The head that an earlier run has written; nothing where the journal is new.
  const std::optional<std::string>& head() const { return head_; }
  // Writes the head of a new journal and waits until the disk has it.
  void begin(const std::string& head);

  // Hands out the rows of earlier runs in their order. The journal ends before a row for which
  // `take` returns false, and before a record that is not whole; returns the bytes cut off.
  uint64_t replay(const std::function<bool(const JournalRow&, uint64_t offset)>& take);

  // Returns the offset of the row's record, from which read() reads it once it is committed.
  uint64_t append(const JournalRow& row);
  uint64_t waiting_bytes() const { return waiting_.size(); }
  void commit();
  JournalRow read(uint64_t offset) const;

  // Forgets all rows of a journal without a name.
  void forget();
  // Removes the file: the job is complete.
  void remove();

 private:
  JournalReader reader(uint64_t begin) const;
  void sync();

  WrittenFile file_;
  bool unnamed_ = false;
  bool begun_ = false;
  std::optional<std::string> head_;
  uint64_t rows_begin_ = 0;
  uint64_t committed_ = 0;  // bytes of the file that are records on the disk
  std::string waiting_;     // records that are not committed
};

}  // namespace klotski
