#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

#include "cli/command.h"

namespace klotski {

namespace {

volatile std::sig_atomic_t asking = 0;
volatile std::sig_atomic_t changed = 0;

struct Stopped {};  // the work that a signal ends

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // Both signals are blocked, so that the second of two finds the flag set.
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

void install_signal_handlers() {
  handle([](int signal) { ::_exit(128 + signal); });
  std::signal(SIGPIPE, SIG_IGN);
}

void let_signals_ask() {
  handle([](int signal) {
    if (asking != 0) ::_exit(128 + signal);
    asking = signal;
  });
}

int signal_asking_to_stop() { return asking; }

int take_signal() {
  const int signal = asking;
  asking = 0;
  return signal;
}

int run_until_asked(const std::function<int()>& work, std::string_view files) {
  let_signals_ask();
  try {
    return work();
  } catch (const Stopped&) {
    write_err(std::string("stopped; ") + std::string(files) + "\n");
    return 128 + signal_asking_to_stop();
  }
}

void stop_if_asked() {
  if (signal_asking_to_stop() != 0) throw Stopped();
}

void note_terminal_changes() {
  struct sigaction action {};
  action.sa_handler = [](int) { changed = 1; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &action, nullptr);
  sigaction(SIGCONT, &action, nullptr);
}

bool terminal_changed() {
  const bool found = changed != 0;
  changed = 0;
  return found;
}

}  // namespace klotski
