#include "batch/job_results.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

constexpr int kHeadFormat = 1;
// Finished rows are committed together, after this time or once they have this many bytes: an fsync
// takes some milliseconds.
constexpr std::chrono::milliseconds kCommitPause{200};
constexpr uint64_t kCommitBytes = kMiB;

OrderedJson parse_head(const Journal& journal) {
  OrderedJson head = parse_ordered_json(*journal.head(), "journal", ErrorKind::usage);
  const OrderedJson none;
  const bool known = head.is_object() && head.value("format", none) == kHeadFormat &&
                     head.value("created", none).is_number_integer() &&
                     head.value("replaces", none).is_boolean() &&
                     head.value("identity", none).is_object();
  if (!known) {
    fail(ErrorKind::usage,
         "{}: is the journal of another version of this program; finish the job with that one, or "
         "remove the journal to begin again",
         path_in_quotes(journal.path()));
  }
  return head;
}

bool is_the_input(const std::filesystem::path& path, int input_descriptor) {
  struct stat there {};
  struct stat input {};
  return input_descriptor >= 0 && ::stat(path.c_str(), &there) == 0 &&
         ::fstat(input_descriptor, &input) == 0 && there.st_dev == input.st_dev &&
         there.st_ino == input.st_ino;
}

std::string value_in_words(const OrderedJson& value) {
  return in_quotes(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

std::filesystem::path journal_path(const std::filesystem::path& output) {
  std::filesystem::path name = output;
  return name += ".journal";
}

JobResults::JobResults(JobOutputs outputs, int input_descriptor, WaitForSpace wait_for_space)
    : outputs_(std::move(outputs)),
      wait_for_space_(std::move(wait_for_space)),
      lasts_(can_last(outputs_.output)) {
  check_outputs(input_descriptor);
  with_space([&] {
    journal_ = lasts_ ? std::make_unique<Journal>(journal_path(outputs_.output))
                      : std::make_unique<Journal>();
  });
  resumed_ = worth_keeping_ = journal_->head().has_value();
  if (lasts_) return;
  const bool replaces = std::filesystem::exists(outputs_.errors);
  open_outputs(replaces ? ResultFile::Writing::beside : ResultFile::Writing::itself);
}

JobResults::~JobResults() {
  if (worth_keeping_) return;
  try {
    for (const auto& file : files_) file->discard();
    journal_->remove();
  } catch (const std::exception&) {  // the next run finds an empty job and goes on with it
  }
}

// The output may be there already where it is replaced, or where a journal says that it belongs to
// the job at hand.
void JobResults::check_outputs(int input_descriptor) const {
  std::error_code unknown;
  const bool resumes =
      lasts_ && std::filesystem::file_size(journal_path(outputs_.output), unknown) > 0 && !unknown;
  const auto whole = [](const std::filesystem::path& path) {
    std::error_code failed;
    const std::filesystem::path found = std::filesystem::weakly_canonical(path, failed);
    return failed ? path : found;
  };
  if (!outputs_.errors.empty() && whole(outputs_.errors) == whole(outputs_.output)) {
    fail(ErrorKind::usage, "--errors {}: is the output; give the failed rows another file",
         path_in_quotes(outputs_.errors));
  }
  for (const std::filesystem::path& path : {outputs_.output, outputs_.errors}) {
    if (path.empty() || path == "-") continue;
    // The journal beside the output says by itself that there is no folder.
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    if (path == outputs_.errors && !std::filesystem::is_directory(folder, unknown)) {
      fail(ErrorKind::usage, "--errors {}: No such file or directory; make the folder {} first",
           path_in_quotes(path), path_in_quotes(folder));
    }
    if (std::filesystem::is_directory(path, unknown)) {
      fail(ErrorKind::usage, "{}: expected a file or a new name, found a folder",
           path_in_quotes(path));
    }
    if (is_the_input(path, input_descriptor)) {
      fail(ErrorKind::usage, "{}: is the input; give the results another name",
           path_in_quotes(path));
    }
    const bool there = std::filesystem::is_regular_file(path, unknown);
    if (there && !outputs_.overwrite && !resumes) {
      fail(ErrorKind::usage, "{}: is there already; give another name or --overwrite",
           path_in_quotes(path));
    }
    if (!resumes && std::filesystem::exists(beside(path), unknown) && can_last(path)) {
      fail(ErrorKind::usage, "{}: is in the way of the new results; remove it",
           path_in_quotes(beside(path)));
    }
  }
}

void JobResults::check_identity(const OrderedJson& head, const OrderedJson& identity) const {
  const OrderedJson& before = head["identity"];
  const OrderedJson none;
  for (const auto& [name, value] : identity.items()) {
    const OrderedJson then = before.value(name, none);
    if (then == value) continue;
    fail(ErrorKind::usage,
         "{}: the job was begun with another {}: expected {}, found {}; give the same one to go "
         "on, or remove {} and {} to begin again",
         path_in_quotes(outputs_.output), name, value_in_words(then), value_in_words(value),
         path_in_quotes(journal_->path()), path_in_quotes(outputs_.output));
  }
}

void JobResults::begin(const OrderedJson& identity, int64_t rows, int64_t now) {
  done_.assign(static_cast<size_t>(rows), false);
  created_ = now;
  if (!lasts_) return;
  bool replaces = false;
  if (resumed_) {
    const OrderedJson head = parse_head(*journal_);
    check_identity(head, identity);
    created_ = head["created"].get<int64_t>();
    replaces = head["replaces"].get<bool>();
  } else {
    replaces = std::filesystem::exists(outputs_.output) ||
               (!outputs_.errors.empty() && std::filesystem::exists(outputs_.errors));
    if (replaces && !outputs_.overwrite) check_outputs(-1);
    const OrderedJson head = {
        {"format", kHeadFormat}, {"created", now}, {"replaces", replaces}, {"identity", identity}};
    with_space([&] { journal_->begin(head.dump()); });
  }
  with_space(
      [&] { open_outputs(replaces ? ResultFile::Writing::beside : ResultFile::Writing::itself); });
  replay();
  worth_keeping_ = rows_done_ > 0;
}

void JobResults::open_outputs(ResultFile::Writing writing) {
  files_.clear();
  files_.push_back(std::make_unique<ResultFile>(outputs_.output, writing));
  if (!outputs_.errors.empty()) {
    files_.push_back(std::make_unique<ResultFile>(outputs_.errors, writing));
  }
}

void JobResults::replay() {
  bytes_lost_ = journal_->replay([&](const JournalRow& row, uint64_t offset) {
    if (row.row >= rows() || done(row.row)) return false;  // no row of ours
    done_[static_cast<size_t>(row.row)] = true;
    ++rows_done_;
    rows_failed_ += row.failed;
    if (outputs_.ordered) {
      held_.emplace(row.row, offset);
    } else {
      hand_out(row);
    }
    return true;
  });
  hand_out_in_order();
  for (const auto& file : files_) file->settle();
  flush();
}

void JobResults::hand_out(const JournalRow& row) {
  ResultFile& file = row.failed ? *files_.back() : *files_.front();
  file.put(row.text);
  if (file.waiting_bytes() >= kCommitBytes) flush();
}

void JobResults::hand_out_in_order() {
  for (auto first = held_.begin(); first != held_.end() && first->first == next_; ++next_) {
    hand_out(journal_->read(first->second));
    first = held_.erase(first);
  }
}

void JobResults::flush() {
  for (const auto& file : files_) {
    if (file->lasts()) {
      with_space([&] { file->flush(); });
    } else {
      file->flush();
    }
  }
}

void JobResults::with_space(const std::function<void()>& action) const {
  for (;;) {
    try {
      action();
      return;
    } catch (const DiskFull& full) {
      if (!wait_for_space_ || !wait_for_space_(full.what())) throw;
    }
  }
}

void JobResults::add(JournalRow row) {
  done_[static_cast<size_t>(row.row)] = true;
  ++rows_done_;
  rows_failed_ += row.failed;
  if (!oldest_) oldest_ = Clock::now();
  if (outputs_.ordered) held_.emplace(row.row, journal_->append(row));
  if (!outputs_.ordered && lasts_) journal_->append(row);
  if (!outputs_.ordered) waiting_.push_back(std::move(row));
}

void JobResults::commit_if_due() {
  if (!oldest_) return;
  const bool due = Clock::now() - *oldest_ >= kCommitPause ||
                   journal_->waiting_bytes() >= kCommitBytes || !lasts_;
  if (due) commit();
}

void JobResults::commit() {
  with_space([&] { journal_->commit(); });
  worth_keeping_ = worth_keeping_ || rows_done_ > 0;
  for (const JournalRow& row : waiting_) hand_out(row);
  waiting_.clear();
  oldest_.reset();
  hand_out_in_order();
  if (held_.empty()) journal_->forget();
  flush();
}

void JobResults::finish() {
  commit();
  worth_keeping_ = true;
  for (const auto& file : files_) {
    if (file->lasts()) with_space([&] { file->finish(); });
  }
  if (lasts_) with_space([&] { journal_->remove(); });
}

}  // namespace klotski
