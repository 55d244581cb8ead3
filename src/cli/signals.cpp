#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

namespace klotski {

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { ::_exit(128 + signal); };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace klotski
