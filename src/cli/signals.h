#pragma once

namespace klotski {

// Thrown by check_interrupted; ends the command with exit code 128 + signal.
struct Interrupted {
  int signal;
};

// SIGINT and SIGTERM ask the command to stop at its next check; a second one ends the process at
// once. SIGPIPE is ignored: a closed pipe shows as a failed write.
void install_signal_handlers();

void check_interrupted();

}  // namespace klotski
