#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace klotski {

namespace {

volatile std::sig_atomic_t pending_signal = 0;

void on_signal(int signal) {
  if (pending_signal != 0) ::_exit(128 + signal);
  pending_signal = signal;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;  // no SA_RESTART: a read that waits for input must return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void check_interrupted() {
  if (pending_signal != 0) throw Interrupted{pending_signal};
}

}  // namespace klotski
