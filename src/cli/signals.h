#pragma once

namespace klotski {

// SIGINT and SIGTERM end the process at once, wherever it is, with exit code 128 + signal: most
// commands keep nothing that would have to be put in order. SIGPIPE is ignored: a closed pipe
// shows as a failed write.
void install_signal_handlers();

// Lets the first SIGINT or SIGTERM only ask to stop from now on, for a command that has something
// to put in order; a second one ends the process at once.
void let_signals_ask();
// The signal that asked to stop, or 0.
int signal_asking_to_stop();

}  // namespace klotski
