#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "batch/input_file.h"
#include "batch/result.h"
#include "batch/result_file.h"
#include "batch/row.h"
#include "engine/engine.h"
#include "engine/text_stream.h"

namespace klotski {

// Enough rows in the engine that it always has some to choose from; memory does not grow further.
struct BatchWindow {
  int64_t rows = 256;
  int64_t pending_tokens = 65536;  // prompt tokens that are not computed yet
};

struct BatchCounts {
  int64_t rows_ok = 0;
  int64_t rows_failed = 0;
  int64_t prompt_tokens = 0;  // tokens of rows that have begun to generate
  int64_t generated_tokens = 0;

  int64_t rows_done() const { return rows_ok + rows_failed; }
};

struct BatchHooks {
  std::function<bool()> stop_asked;                    // asked between steps; true ends the job
  std::function<void(const BatchCounts&)> after_step;  // progress
};

// Runs the rows of an input through an engine and writes each result when it is there. A row that
// cannot be run gives an error row; a failure of the engine or of the output ends the job, with all
// results written so far in good order.
class BatchJob {
 public:
  // All must outlive the job. `model` is the name written into the results.
  BatchJob(Engine& engine, const RowDefaults& defaults, std::string model, InputFile& input,
           ResultFile& output, BatchWindow window = {});

  BatchCounts run(const BatchHooks& hooks);

 private:
  struct Running {
    ResultHead head;
    Completion completion;
    TextStream text;
  };

  void fill_window();
  void start(const InputLine& line);
  void take(const Progress& progress);
  void write_failed(const std::string& line);

  Engine& engine_;
  const RowDefaults& defaults_;
  std::string model_;
  InputFile& input_;
  ResultFile& output_;
  BatchWindow window_;

  bool input_ended_ = false;
  std::map<SequenceId, Running> running_;
  BatchCounts counts_;
};

}  // namespace klotski
