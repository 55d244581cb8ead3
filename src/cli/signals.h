#pragma once

#include <functional>
#include <string_view>

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
// Like signal_asking_to_stop(), and forgets it: the next signal asks again.
int take_signal();

// Runs work that writes a folder of files and returns its exit code. A first SIGINT or SIGTERM ends
// the work where it calls stop_if_asked(), so that it can put its files in order; then standard
// error says what became of them, and the exit code is 128 + signal.
int run_until_asked(const std::function<int()>& work, std::string_view files);
void stop_if_asked();

// From now on terminal_changed() says once that the terminal got another size, or that the process
// goes on after a stop and the terminal has to be set up again.
void note_terminal_changes();
bool terminal_changed();

}  // namespace klotski
