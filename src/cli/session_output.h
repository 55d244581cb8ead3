#pragma once

#include <string>

#include "cli/session_flags.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace klotski {

// Prints a session's remarks, progress and, where --plan asks for them or a terminal shows them,
// its memory plans to standard error.
SessionEvents events_on_stderr(const SessionFlags& flags);

// Passes the --warm-up text through the loaded model, where one is given.
void warm_up(const SessionFlags& flags, Session& session, const Tokenizer& tokenizer);

// Writes the files that the flags ask for, after a run.
void write_session_files(const SessionFlags& flags, Session& session);

// Lanes, bubbles, bytes, expert cache and memory of a run, as text.
std::string format_summary(PreparedModel& model);

}  // namespace klotski
