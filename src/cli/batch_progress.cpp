#include "cli/batch_progress.h"

#include <algorithm>
#include <cstdint>

#include "cli/command.h"

namespace klotski {

namespace {

constexpr double kFirstPlainPause = 10.0;  // seconds
constexpr double kMostPlainPause = 120.0;

}  // namespace

void BatchProgress::update(const ProgressFigures& figures) {
  const bool terminal = form_ == ProgressForm::automatic && err_is_terminal();
  if (form_ == ProgressForm::none) return;
  if (pause_ == 0.0) pause_ = terminal || form_ == ProgressForm::json ? 1.0 : kFirstPlainPause;
  if (figures.seconds - shown_at_ < pause_) return;
  shown_at_ = figures.seconds;
  if (form_ == ProgressForm::json) {
    write_err(progress_json(figures, "progress"));
  } else if (terminal) {
    pause_ = 0.1;
    visible_ = true;
    write_err("\r\033[K" + progress_line(figures, err_columns() - 1));
  } else {
    pause_ = std::min(1.5 * pause_, kMostPlainPause);
    write_err(progress_line(figures, SIZE_MAX) + "\n");
  }
}

void BatchProgress::end(const ProgressFigures& figures, const std::string& event) {
  erase();
  if (form_ == ProgressForm::json) write_err(progress_json(figures, event));
}

void BatchProgress::erase() {
  if (visible_) write_err("\r\033[K");
  visible_ = false;
}

}  // namespace klotski
