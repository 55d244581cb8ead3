#include "batch/journal.h"

#include <fcntl.h>

#include "base/error.h"
#include "base/write_calls.h"

namespace klotski {

namespace {

// Opens and locks the file that has the name once the lock is there: the process that held it
// before may have removed the one that was opened.
WrittenFile open_locked(const std::filesystem::path& path) {
  for (;;) {
    WrittenFile file(path, O_RDWR | O_CREAT | O_NONBLOCK);
    if (!file.regular()) {
      fail(ErrorKind::usage, "{}: expected a journal or a new name, found something else",
           path_in_quotes(path));
    }
    if (!file.lock()) {
      fail(ErrorKind::usage,
           "{}: another process is at work on this job; wait for it or choose another --output",
           path_in_quotes(path));
    }
    if (file.named()) return file;
  }
}

}  // namespace

Journal::Journal(const std::filesystem::path& path) : file_(open_locked(path)) {
  JournalReader records = reader(0);
  head_ = records.head();
  rows_begin_ = committed_ = records.whole_bytes();
  begun_ = head_.has_value();
  if (head_ || records.torn_at_birth()) return;
  fail(ErrorKind::usage,
       "{}: is no whole journal of a job; remove it to begin the job again, or choose another "
       "--output",
       path_in_quotes(path));
}

Journal::Journal() : file_(WrittenFile::temporary()), unnamed_(true), begun_(true) {}

Journal::~Journal() {
  if (begun_) return;
  try {
    remove_file(path());
  } catch (const Error&) {  // an empty journal does no harm
  }
}

JournalReader Journal::reader(uint64_t begin) const {
  return {file_.size() - begin, [this, begin](uint64_t offset, std::span<char> out) {
            file_.read_at(begin + offset, out);
          }};
}

void Journal::sync() {
  if (!unnamed_) file_.sync();
}

void Journal::begin(const std::string& head) {
  const std::string record = head_record(head);
  file_.truncate(0);
  file_.write_at(0, record);
  sync();
  if (!unnamed_) sync_folder_of(path());
  head_ = head;
  begun_ = true;
  rows_begin_ = committed_ = record.size();
}

uint64_t Journal::replay(const std::function<bool(const JournalRow&, uint64_t)>& take) {
  JournalReader records = reader(rows_begin_);
  JournalRow row;
  uint64_t whole = rows_begin_;
  while (records.next(row) && take(row, rows_begin_ + records.row_offset())) {
    whole = rows_begin_ + records.whole_bytes();
  }
  const uint64_t cut = file_.size() - whole;
  if (cut > 0) file_.truncate(whole);
  committed_ = whole;
  return cut;
}

uint64_t Journal::append(const JournalRow& row) {
  const uint64_t offset = committed_ + waiting_.size();
  waiting_ += row_record(row);
  return offset;
}

void Journal::commit() {
  if (waiting_.empty()) return;
  try {
    file_.write_at(committed_, waiting_);
    sync();
  } catch (const Error&) {
    // After a failed fsync nobody knows which bytes the disk has: all of them are written again.
    [[maybe_unused]] const int as_well_as_we_can =
        write_calls().ftruncate(file_.descriptor(), static_cast<off_t>(committed_));
    throw;
  }
  committed_ += waiting_.size();
  waiting_.clear();
}

JournalRow Journal::read(uint64_t offset) const {
  JournalReader record = reader(offset);
  JournalRow row;
  if (!record.next(row)) {
    fail(ErrorKind::internal, "{}: the record at byte {} cannot be read back",
         path_in_quotes(path()), offset);
  }
  return row;
}

void Journal::forget() {
  if (!unnamed_) return;
  file_.truncate(rows_begin_);
  committed_ = rows_begin_;
}

// A journal that is there again after a power failure says that all rows are done: it does no harm
// where the folder cannot be flushed.
void Journal::remove() {
  remove_file(path());
  try {
    sync_folder_of(path());
  } catch (const Error&) {
  }
}

}  // namespace klotski
