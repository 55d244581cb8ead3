#pragma once

#include <string>

#include "cli/batch_progress_text.h"

namespace klotski {

enum class ProgressForm {
  automatic,  // on a terminal one line that is kept up to date, else a plain line now and then
  json,       // a JSON object a second
  none,
};

// A job's progress on standard error.
class BatchProgress {
 public:
  explicit BatchProgress(ProgressForm form) : form_(form) {}
  ~BatchProgress() { erase(); }
  BatchProgress(const BatchProgress&) = delete;
  BatchProgress& operator=(const BatchProgress&) = delete;

  void update(const ProgressFigures& figures);
  // The last figures of the run; `event` as progress_json() takes it.
  void end(const ProgressFigures& figures, const std::string& event);
  // Removes the line from the terminal, so that other text can be written.
  void erase();

 private:
  ProgressForm form_;
  double shown_at_ = 0.0;  // seconds of the run
  double pause_ = 0.0;     // seconds until the next line
  bool visible_ = false;
};

}  // namespace klotski
