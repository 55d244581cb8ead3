#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "batch/input_file.h"
#include "batch/job_results.h"
#include "batch/result.h"
#include "batch/row.h"
#include "engine/engine.h"
#include "engine/text_stream.h"

namespace klotski {

// Enough rows in the engine that it always has some to choose from; memory does not grow further.
struct BatchWindow {
  int64_t rows = 256;
  int64_t pending_tokens = 65536;  // prompt tokens that are not computed yet
};

// Work of this run, without that of earlier runs of a resumed job.
struct BatchCounts {
  int64_t rows_ok = 0;
  int64_t rows_failed = 0;
  int64_t rows_begun = 0;     // rows that have begun to generate
  int64_t prompt_tokens = 0;  // tokens of rows that have begun to generate
  int64_t generated_tokens = 0;
  int64_t generated_by_done = 0;  // by the rows of rows_ok

  int64_t rows_done() const { return rows_ok + rows_failed; }
};

struct BatchHooks {
  std::function<bool()> stop_asked;                    // asked between steps; true ends the job
  std::function<void(const BatchCounts&)> after_step;  // progress
  // A row that failed, and why; may be empty.
  std::function<void(int64_t line, const std::string& reason)> row_failed{};
};

// Runs the rows of an input that have no result yet through an engine and hands over each result
// when it is there. A row that cannot be run gives an error row; a failure of the engine or of the
// results ends the job, which can be resumed. Where a pass fails, because an expert cannot be read,
// its rows run again in halves until those that need the expert fail alone: other rows go on.
class BatchJob {
 public:
  // All must outlive the job. `model` is the name written into the results.
  BatchJob(Engine& engine, const RowDefaults& defaults, std::string model, InputFile& input,
           JobResults& results, BatchWindow window = {});

  // Returns with all rows done and committed, or when asked to stop with those done so far.
  BatchCounts run(const BatchHooks& hooks);

 private:
  // A row that can be run, and run again.
  struct Row {
    int64_t row = 0;
    ResultHead head;
    RowRequest request;
    int failures = 0;     // passes that failed with the row among others or alone
    std::string error{};  // the reason of the last one
  };
  struct Running {
    Row row;
    Completion completion;
    TextStream text;
  };

  void fill_window();
  void start(const InputLine& line);
  void submit(Row row);
  void take(const Progress& progress, std::vector<Row>& failed);
  void suspect(std::vector<Row> failed);
  void write_failed(const ResultHead& head, int64_t row, std::string line,
                    const std::string& reason);

  Engine& engine_;
  const RowDefaults& defaults_;
  std::string model_;
  InputFile& input_;
  JobResults& results_;
  BatchWindow window_;
  const BatchHooks* hooks_ = nullptr;  // while run() runs

  bool input_ended_ = false;
  std::map<SequenceId, Running> running_;
  // Rows that failed together, where a weight could not be read, and are to run without others.
  std::deque<std::vector<Row>> suspects_;
  BatchCounts counts_;
};

}  // namespace klotski
