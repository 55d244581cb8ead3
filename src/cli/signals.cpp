#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace klotski {

namespace {

volatile std::sig_atomic_t asking = 0;

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

}  // namespace klotski
