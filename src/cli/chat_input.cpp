#include "cli/chat_input.h"

#include <unistd.h>

#include "cli/command.h"
#include "cli/generation.h"

namespace klotski {

namespace {

class PlainInput : public ChatInput {
 public:
  std::optional<std::string> next() override {
    if (chat_has_terminal()) write_err("> ");
    return lines_.next();
  }

 private:
  LineReader lines_{kMaxPromptBytes};
};

}  // namespace

bool chat_has_terminal() { return ::isatty(STDIN_FILENO) == 1 && err_is_terminal(); }

std::unique_ptr<ChatInput> open_chat_input() {
#ifdef KLOTSKI_HAVE_LIBEDIT
  if (chat_has_terminal()) return open_edited_input();
#endif
  return std::make_unique<PlainInput>();
}

}  // namespace klotski
