#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/thread_stacks.h"
#include "cli/command.h"
#include "cli/hints.h"
#include "cli/signals.h"

namespace klotski {
namespace {

// A closed standard descriptor would be given to the next file opened. Each is replaced by one on
// which the wrong use fails: writing to a closed standard output must not pass as success.
void fill_closed_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int opened =
        ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int report(ErrorKind kind, std::string_view message) {
  write_err(fmt::format("klotski: {}\n", one_line(message)));
  return exit_code(kind);
}

// A usage error as one line of bounded length, with where to look.
int report_usage(const CLI::App& app, const std::string& message) {
  const CLI::App* command = &app;
  for (const CLI::App* chosen : app.get_subcommands()) command = chosen;
  const std::string name = command == &app ? "klotski" : "klotski " + command->get_name();
  return report(ErrorKind::usage, fmt::format("{} (see {} --help)", one_line(message, 400), name));
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// The option that may be meant by the first unknown one, as the end of an error message.
std::string option_hint(const CLI::App& app) {
  std::vector<std::string> options;
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  }
  for (const std::string& unknown : app.remaining(true)) {
    const std::optional<std::string> nearest =
        nearest_name(unknown.substr(0, unknown.find('=')), options);
    if (nearest) return fmt::format("; did you mean {}?", *nearest);
  }
  return {};
}

// The size of the refused memory is not known; with less than this nothing here runs.
constexpr uint64_t kLeastBytes = 16 * kMiB;
constexpr uint64_t kLeastToBegin = 4 * kMiB;

// Writes the message without any memory of its own.
void write_out_of_memory() noexcept {
  const auto limit_of = [](auto resource) -> uint64_t {
    rlimit limit{};
    return ::getrlimit(resource, &limit) == 0 ? uint64_t{limit.rlim_cur} : UINT64_MAX;
  };
  const uint64_t limit = std::min(limit_of(RLIMIT_AS), limit_of(RLIMIT_DATA));
  const auto in_mib = [](uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(kMiB);
  };
  std::array<char, 200> text{};
  const int length =
      limit < kLeastBytes
          ? std::snprintf(text.data(), text.size(),
                          "klotski: out of memory: the program needs at least %.1f MiB, the limit "
                          "is %.1f MiB (ulimit -v, -d): %.1f MiB too little\n",
                          in_mib(kLeastBytes), in_mib(limit), in_mib(kLeastBytes - limit))
          : std::snprintf(text.data(), text.size(), "klotski: out of memory; raise the limit\n");
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, text.data(), static_cast<size_t>(std::max(length, 0)));
}

// Runs before objects of libraries are made: without memory for these, for an exception and for a
// message the program could only abort.
__attribute__((constructor(101))) void refuse_to_begin_without_memory() {
  constexpr size_t kLeastToReport = 256 * 1024;
  void* const memory = std::malloc(kLeastToReport);
  if (memory == nullptr) {
    write_out_of_memory();
    ::_exit(exit_code(ErrorKind::does_not_fit));
  }
  std::free(memory);
}

const std::terminate_handler kUsualEnd = std::get_terminate();

// Ends the program where it could only abort. A document of JSON needs memory to be destroyed:
// where memory ran out while it was made, its destructor throws.
[[noreturn]] void end_without_memory() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    write_out_of_memory();
    ::_exit(exit_code(ErrorKind::does_not_fit));
  } catch (...) {
  }
  kUsualEnd();
  std::abort();
}

// The C library loads what it needs for exceptions that pass through its own functions only when
// the first one does, and ends the process where there is no memory for that.
void load_unwinder() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

int report_out_of_memory() {
  try {
    return report(ErrorKind::does_not_fit,
                  fmt::format("out of memory: {}; raise the limit or use a smaller model",
                              describe_shortage(kLeastBytes)));
  } catch (const std::exception&) {  // not even memory for the message
    write_out_of_memory();
    return exit_code(ErrorKind::does_not_fit);
  }
}

int run(int argc, char** argv) {
  CLI::App app("Klotski runs Mixture-of-Experts language models that do not fit in fast memory.",
               "klotski");
  app.set_version_flag("--version", "klotski " KLOTSKI_VERSION);
  app.require_subcommand(1);
  app.footer(
      "MODEL is a folder, a .gguf file (of shards the first), `tiny` (the bundled model), or a\n"
      "repository id in the local Hugging Face cache.\nExit codes: 0 ok, 1 internal, 2 usage, 3 "
      "bad or unsupported model file, 4 does not "
      "fit in memory,\n5 device unavailable, 6 device failed, 7 rows of a batch failed, 130 and "
      "143 on "
      "SIGINT and SIGTERM.");
  Action action;
  add_run_command(app, action);
  add_list_command(app, action);
  add_batch_command(app, action);
  add_serve_command(app, action);
  add_info_command(app, action);
  add_verify_command(app, action);
  add_bench_command(app, action);
  add_perplexity_command(app, action);
  add_trace_command(app, action);
  add_train_predictor_command(app, action);
  add_replay_command(app, action);
  add_plan_command(app, action);
  add_schedule_command(app, action);
  add_tokenize_command(app, action);
  add_template_command(app, action);
  add_compact_command(app, action);
  add_quantize_command(app, action);
  add_synth_command(app, action);
  add_doctor_command(app, action);
  add_help_command(app, action);

  const std::vector<std::string> commands = names_of_commands(app);
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc > 1 && first.rfind('-', 0) != 0 &&
      std::find(commands.begin(), commands.end(), first) == commands.end()) {
    return report_usage(
        app, fmt::format("{}: no such command{}", in_quotes(first), command_hint(first, commands)));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    write_out(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::CallForHelp&) {
    write_out(app.help());
    return 0;
  } catch (const CLI::ExtrasError& error) {
    return report_usage(app, one_line(error.what(), 300) + option_hint(app));
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error.what());
  } catch (const Error& error) {  // from an option's own check
    return report_usage(app, error.what());
  }
  return action();
}

}  // namespace
}  // namespace klotski

int main(int argc, char** argv) {
  using namespace klotski;
  std::set_terminate(end_without_memory);
  load_unwinder();
  fill_closed_descriptors();
  install_signal_handlers();
  use_little_address_space_per_thread();
  try {
    // With less memory not even a parsed document can be destroyed: that takes memory too, and the
    // library that does it cannot be told that there is none.
    if (memory_left().least() < kLeastToBegin) return report_out_of_memory();
    return run(argc, argv);
  } catch (const Error& error) {
    const int code = report(error.kind(), error.what());
    // Destructors and drivers that run at a program's end may wait for a device that never answers.
    if (error.kind() == ErrorKind::device_lost) ::_exit(code);
    return code;
  } catch (const std::bad_alloc&) {
    return report_out_of_memory();
  } catch (const std::exception& error) {
    return report(ErrorKind::internal, error.what());
  }
}
