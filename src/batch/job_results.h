#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "batch/journal.h"
#include "batch/result_file.h"

namespace klotski {

struct JobOutputs {
  std::filesystem::path output;    // "-": standard output
  std::filesystem::path errors{};  // rows that failed; empty: among the other results
  bool overwrite = false;          // older files are replaced when the new ones are complete
  bool ordered = false;            // results in the order of the input, else as they are done
};

// The journal that lies beside a job's output.
std::filesystem::path journal_path(const std::filesystem::path& output);

// Results of a job that cannot get lost: each is in the journal and on the disk before it appears
// in an output, and outputs are made of the journal's rows alone. A process that dies at any moment
// leaves a journal with which the same job goes on; finish() removes it.
class JobResults {
 public:
  // Told why there is no space; false gives up, true tries again.
  using WaitForSpace = std::function<bool(const std::string& problem)>;

  // Opens and locks the journal. Refuses (usage) an output that is there already, unless it is that
  // of the job to go on with or to be overwritten, and one that is the job's input
  // (`input_descriptor`; -1: none).
  JobResults(JobOutputs outputs, int input_descriptor, WaitForSpace wait_for_space);

  // Leaves nothing of a job without a result: neither a journal nor empty outputs.
  ~JobResults();
  JobResults(const JobResults&) = delete;
  JobResults& operator=(const JobResults&) = delete;

  // Begins the job, or goes on with it. `identity` has by name all that makes results what they
  // are; refuses (usage) to go on with a job of another identity. `now` is the time in seconds
  // since 1970.
  void begin(const OrderedJson& identity, int64_t rows, int64_t now);

  bool resumed() const { return resumed_; }
  int64_t created() const { return created_; }  // `now` of the job's first run
  int64_t rows() const { return static_cast<int64_t>(done_.size()); }
  bool done(int64_t row) const { return done_[static_cast<size_t>(row)]; }
  int64_t rows_done() const { return rows_done_; }
  int64_t rows_failed() const { return rows_failed_; }
  // Bytes of the journal that were not whole and are computed again.
  uint64_t bytes_lost() const { return bytes_lost_; }
  // Where the job goes on from; empty: it cannot.
  std::filesystem::path journal() const { return lasts_ ? journal_->path() : ""; }

  // Takes the result of a row that is not done.
  void add(JournalRow row);
  // Commits rows that have waited for long enough: many share one fsync.
  void commit_if_due();
  void commit();
  // Completes the outputs and removes the journal. All rows must be done.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void check_outputs(int input_descriptor) const;
  void check_identity(const OrderedJson& head, const OrderedJson& identity) const;
  void open_outputs(ResultFile::Writing writing);
  void replay();
  void hand_out(const JournalRow& row);
  void hand_out_in_order();
  void flush();
  void with_space(const std::function<void()>& action) const;

  JobOutputs outputs_;
  WaitForSpace wait_for_space_;
  bool lasts_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::unique_ptr<ResultFile>> files_;  // results, errors
  bool resumed_ = false;
  int64_t created_ = 0;
  std::vector<bool> done_;
  int64_t rows_done_ = 0;
  int64_t rows_failed_ = 0;
  bool worth_keeping_ = true;  // the journal has rows, or is not ours
  uint64_t bytes_lost_ = 0;
  std::vector<JournalRow> waiting_;          // added, not committed
  std::map<int64_t, uint64_t> held_{};       // ordered: rows behind one that is not done, by offset
  int64_t next_ = 0;                         // ordered: the row to be handed out next
  std::optional<Clock::time_point> oldest_;  // when the oldest waiting row was added
};

}  // namespace klotski
