#pragma once

// Shared by all commands: how one is registered, its options read strictly, its output checked.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace klotski {

// Runs the chosen command; the result is the exit code.
using Action = std::function<int()>;

// Functions that register a sub-command, which sets `action` when it was chosen.
void add_batch_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action);
void add_compact_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);
void add_help_command(CLI::App& app, Action& action);
void add_info_command(CLI::App& app, Action& action);
void add_list_command(CLI::App& app, Action& action);
void add_perplexity_command(CLI::App& app, Action& action);
void add_plan_command(CLI::App& app, Action& action);
void add_quantize_command(CLI::App& app, Action& action);
void add_replay_command(CLI::App& app, Action& action);
void add_run_command(CLI::App& app, Action& action);
void add_serve_command(CLI::App& app, Action& action);
void add_synth_command(CLI::App& app, Action& action);
void add_template_command(CLI::App& app, Action& action);
void add_tokenize_command(CLI::App& app, Action& action);
void add_schedule_command(CLI::App& app, Action& action);
void add_trace_command(CLI::App& app, Action& action);
void add_train_predictor_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);

// Section of the help for options that most users never need. Options that are added while it is
// the command's default group are listed there.
inline constexpr const char* kExperimentGroup = "Options for experiments";

// Options whose whole value must be a decimal number within bounds; anything else is a usage error
// that names the option.
template <typename Number>
struct Bounds {
  Number least;
  Number most;
};
void add_integer(CLI::App& app, const std::string& name, Bounds<int64_t> bounds,
                 const std::string& help, std::function<void(int64_t)> set);
// Several, with commas between.
CLI::Option* add_integers(CLI::App& app, const std::string& name, Bounds<int64_t> bounds,
                          const std::string& help, std::vector<int64_t>& values);
void add_number(CLI::App& app, const std::string& name, Bounds<double> bounds,
                const std::string& help, std::function<void(double)> set);

// A file that the command writes when it is done: one that cannot be written is refused here,
// before hours of work are done for it. `names` as CLI11 takes them, "-o,--output".
CLI::Option* add_output_file(CLI::App& app, const std::string& names, const std::string& type,
                             const std::string& help, std::string& file);

// A size such as 3GiB.
void add_size(CLI::App& app, const std::string& name, const std::string& help,
              std::function<void(uint64_t)> set);

// A file given on the command line, at most max_bytes; "-" is standard input. Errors are of kind
// usage and name `option`.
std::string read_argument_file(const std::string& path, std::string_view option,
                               uint64_t max_bytes);
std::string read_standard_input(uint64_t max_bytes);
// Like read_argument_file(); the built-in sample text where the path is empty.
std::string text_or_sample(const std::string& path, std::string_view option, uint64_t max_bytes);

// Standard input line by line, without the newlines. A longer line than max_line_bytes is an error.
class LineReader {
 public:
  explicit LineReader(uint64_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}
  std::optional<std::string> next();  // nothing at the end

 private:
  uint64_t max_line_bytes_;
  std::string buffer_;
  size_t at_ = 0;  // begin of the next line
};

// Writes all of it to standard output or throws: a full disk or a closed pipe must not pass as
// success.
void write_out(std::string_view text);

// Writes a file that an option names, replacing an existing one; makes sure that all of it arrived.
void write_argument_file(const std::string& path, std::string_view option,
                         const std::function<void(std::ostream&)>& write);

// Progress and remarks; failures are ignored.
void write_err(std::string_view text);
bool err_is_terminal();
// Columns of the terminal that standard error is; 80 where it is none.
size_t err_columns();

// Progress on standard error of work longer than a second: on a terminal a line that is kept up to
// date, cut at the terminal's width and erased at the end, elsewhere a line every ten seconds.
class StatusLine {
 public:
  // Counts are shown in `unit`, or as sizes where it is "bytes".
  StatusLine(std::string label, std::string unit);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  void update(uint64_t done, uint64_t total, std::string_view remark = {});

 private:
  std::string label_;
  std::string unit_;
  double started_;
  double shown_ = 0.0;
  bool visible_ = false;
};

}  // namespace klotski
