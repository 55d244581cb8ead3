#pragma once

namespace klotski {

// SIGINT and SIGTERM end the process at once, wherever it is, with exit code 128 + signal: no
// command keeps anything that would have to be put in order. SIGPIPE is ignored: a closed pipe
// shows as a failed write.
void install_signal_handlers();

}  // namespace klotski
