#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "cli/chat_input.h"
#include "cli/command.h"
#include "cli/generation.h"
#include "cli/signals.h"
#include "probe/probe.h"
#include "text/utf8.h"

namespace klotski {

namespace {

constexpr int kHistoryLines = 1000;
constexpr int kPollMilliseconds = 50;  // longest time until a signal is noticed
// A terminal that is told to marks pasted text with these, so that its line ends end no message.
constexpr std::string_view kAskForPasteMarks = "\033[?2004h";
constexpr std::string_view kNoPasteMarks = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// Whether the terminal understands more than plain text.
bool terminal_has_escapes() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

class EditedInput : public ChatInput {
 public:
  EditedInput();
  ~EditedInput() override;
  EditedInput(const EditedInput&) = delete;
  EditedInput& operator=(const EditedInput&) = delete;
  std::optional<std::string> next() override;

 private:
  static EditedInput& of(EditLine* editor);
  static int read_character(EditLine* editor, wchar_t* character);
  static unsigned char insert_paste(EditLine* editor, int key);
  void bind_keys();
  // Waits for bytes of the terminal; false where a signal asks to stop or no more come.
  bool read_bytes();
  void remember(const std::string& line);

  std::FILE* screen_ = nullptr;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::filesystem::path history_file_;  // empty: the history is not kept
  std::string bytes_;                   // read and not yet handed to the editor
  size_t at_ = 0;
  bool ended_ = false;
  bool too_long_ = false;
};

EditedInput::EditedInput() {
  // The editor measures and writes characters by the locale. Terminals are UTF-8 whatever the
  // user's locale says; nothing else of the program asks for one.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  screen_ = ::fdopen(::dup(STDERR_FILENO), "w");
  editor_ = screen_ == nullptr ? nullptr : ::el_init("klotski", stdin, screen_, screen_);
  history_ = ::history_init();
  if (editor_ == nullptr || history_ == nullptr) {
    fail(ErrorKind::internal, "the terminal cannot be edited in: {}", std::strerror(errno));
  }
  HistEvent event{};
  ::history(history_, &event, H_SETSIZE, kHistoryLines);
  ::history(history_, &event, H_SETUNIQUE, 1);
  if (const auto folder = cache_folder()) {
    history_file_ = *folder / "chat-history";
    ::history(history_, &event, H_LOAD, history_file_.c_str());  // a first chat has none
  }
  ::el_set(editor_, EL_CLIENTDATA, this);
  ::el_set(
      editor_, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("> "); });
  ::el_set(editor_, EL_HIST, &::history, history_);
  ::el_set(editor_, EL_GETCFN, &EditedInput::read_character);
  bind_keys();
  note_terminal_changes();
}

EditedInput::~EditedInput() {
  if (!history_file_.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(history_file_.parent_path(), ignored);
    HistEvent event{};
    ::history(history_, &event, H_SAVE, history_file_.c_str());  // readable by its owner alone
  }
  ::el_end(editor_);
  ::history_end(history_);
  std::fclose(screen_);
}

void EditedInput::bind_keys() {
  ::el_set(editor_, EL_EDITOR, "emacs");
  // Carriage returns and line feeds come as such, or the two bytes of a pasted line end would be
  // two line ends.
  ::el_set(editor_, EL_SETTY, "-d", "-icrnl", "-inlcr", nullptr);
  ::el_set(editor_, EL_ADDFN, "insert-paste", "Insert pasted text", &EditedInput::insert_paste);
  constexpr const char* kKeys[][2] = {
      {"\\e[200~", "insert-paste"}, {"\\e[3~", "ed-delete-next-char"}, {"\\e[H", "ed-move-to-beg"},
      {"\\e[F", "ed-move-to-end"},  {"\\e[1~", "ed-move-to-beg"},      {"\\e[4~", "ed-move-to-end"},
      {"\\e[1;5D", "ed-prev-word"}, {"\\e[1;5C", "em-next-word"},      {"^R", "em-inc-search-prev"},
  };
  for (const auto& [keys, function] : kKeys) {
    ::el_set(editor_, EL_BIND, keys, function, nullptr);
  }
}

EditedInput& EditedInput::of(EditLine* editor) {
  void* input = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &input);
  return *static_cast<EditedInput*>(input);
}

bool EditedInput::read_bytes() {
  bytes_.erase(0, at_);
  at_ = 0;
  while (signal_asking_to_stop() == 0) {
    if (terminal_changed()) {
      // A shell that stopped the program has changed the terminal, which the editor does not know.
      ::el_set(editor_, EL_PREP_TERM, 0);
      ::el_set(editor_, EL_PREP_TERM, 1);
      if (terminal_has_escapes()) write_err(kAskForPasteMarks);
      ::el_resize(editor_);
      ::el_set(editor_, EL_REFRESH);
    }
    pollfd terminal{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (::poll(&terminal, 1, kPollMilliseconds) <= 0) continue;
    char chunk[4096];
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof(chunk));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      ended_ = true;  // the terminal is gone
      return false;
    }
    bytes_.append(chunk, static_cast<size_t>(got));
    return true;
  }
  return false;
}

int EditedInput::read_character(EditLine* editor, wchar_t* character) {
  EditedInput& input = of(editor);
  while (true) {
    const std::string_view rest = std::string_view(input.bytes_).substr(input.at_);
    if (unfinished_utf8_tail(rest) < rest.size()) {
      const Utf8Char next = decode_utf8(rest, 0);
      input.at_ += next.bytes;
      *character = static_cast<wchar_t>(next.code);
      return 1;
    }
    if (!input.read_bytes()) return input.ended_ ? 0 : -1;
  }
}

unsigned char EditedInput::insert_paste(EditLine* editor, int /*key*/) {
  EditedInput& input = of(editor);
  std::wstring text;
  wchar_t character = 0;
  wchar_t before = 0;
  while (::el_wgetc(editor, &character) == 1) {
    const bool second_of_line_end = before == L'\r' && character == L'\n';
    before = character;
    if (second_of_line_end) continue;
    if (character == L'\r') character = L'\n';
    if (text.size() < kMaxPromptBytes) {
      text.push_back(character);
    } else {
      input.too_long_ = true;
      text.erase(0, text.size() - kPasteEnd.size());
      text.push_back(character);
    }
    if (character != L'~' || text.size() < kPasteEnd.size()) continue;
    const size_t begin = text.size() - kPasteEnd.size();
    if (std::wstring_view(text).substr(begin) != kPasteEnd) continue;
    text.resize(begin);
    break;
  }
  while (!text.empty() && text.back() == L'\n') text.pop_back();
  if (!text.empty() && !input.too_long_) ::el_winsertstr(editor, text.c_str());
  return CC_REFRESH;
}

void EditedInput::remember(const std::string& line) {
  HistEvent event{};
  ::history(history_, &event, H_ENTER, line.c_str());
}

std::optional<std::string> EditedInput::next() {
  too_long_ = false;
  const bool marks = terminal_has_escapes();
  // Before the prompt is shown: keys that come after it must reach the editor, Ctrl-D above all.
  ::el_set(editor_, EL_PREP_TERM, 1);
  if (marks) write_err(kAskForPasteMarks);
  int length = 0;
  const char* const read = ::el_gets(editor_, &length);
  std::string line = read == nullptr ? "" : read;
  if (marks) write_err(kNoPasteMarks);
  if (const int signal = signal_asking_to_stop(); signal == SIGINT) {
    take_signal();
    write_err("\n");
    return std::string();
  } else if (signal != 0 || ended_ || read == nullptr) {
    return std::nullopt;
  }
  if (!line.empty() && line.back() == '\n') line.pop_back();
  if (too_long_) {
    write_err("klotski: the pasted text is too long and was dropped\n");
    return std::string();
  }
  if (!line.empty()) remember(line);
  return line;
}

}  // namespace

std::unique_ptr<ChatInput> open_edited_input() { return std::make_unique<EditedInput>(); }

}  // namespace klotski
