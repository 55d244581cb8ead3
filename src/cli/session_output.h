#pragma once

#include <string>

#include "cli/session_flags.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace klotski {

// Prints a session's remarks, progress and plans to standard error: plans as tables where --plan or
// --verbose asks for them, as one line in a terminal, else not at all.
SessionEvents events_on_stderr(const SessionFlags& flags);

// A line that says why a run was not added to the history; none where it was (remember_run).
void tell_if_not_remembered(const std::string& why_not);

// Strategy, group, memory and resident experts of a plan, in one line.
std::string plan_in_words(const RunPlan& plan);

// Passes the --warm-up text through the loaded model, where one is given.
void warm_up(const SessionFlags& flags, Session& session, const Tokenizer& tokenizer);

// Writes the files that the flags ask for, after a run, and with --verbose its summary to standard
// error.
void write_session_files(const SessionFlags& flags, Session& session);

// Lanes, bubbles, bytes, expert cache and memory of a run, as text.
std::string format_summary(PreparedModel& model);

}  // namespace klotski
