#pragma once

#include <string>

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

  // The options with room for the spans that --trace and --timeline write.
  SessionOptions session_options() const;
};

// The flags must live as long as the command.
void add_session_flags(CLI::App& command, SessionFlags& flags);

}  // namespace klotski
