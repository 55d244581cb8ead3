#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"
#include "session/session_options.h"

namespace klotski {

// The flags of every command that plans or computes: the session's options, and the files to write
// traces and drawings to.
struct SessionFlags {
  SessionOptions options;
  std::string trace_file;
  std::string timeline_file;
  std::string save_correlation_file;
  std::string warm_up;  // a file of text, or "sample"
  bool show_plan = false;
  bool verbose = false;  // tables of the plan and of the run

  // The options with room for the spans that --trace and --timeline write.
  SessionOptions session_options() const;
};

// The flags must live as long as the command.
void add_session_flags(CLI::App& command, SessionFlags& flags);
// Only the flags that choose the processor and limit its memory.
void add_memory_flags(CLI::App& command, SessionFlags& flags);

// Refuses (usage) flags that a command which computes nothing cannot honour; `why` ends the
// message: "a plan runs nothing".
void refuse_run_flags(const SessionFlags& flags, std::string_view why);
// Refuses (usage) --warm-up alone.
void refuse_warm_up(const SessionFlags& flags, std::string_view why);

}  // namespace klotski
