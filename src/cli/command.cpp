#include "cli/command.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/numbers.h"
#include "session/sample_text.h"

namespace klotski {

namespace {

// 0, or the number of the error of writing nothing to a device: /dev/full takes no byte.
int error_of_device(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_character_file(path, ignored)) return 0;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) return errno;
  const int error = ::write(descriptor, "", 0) < 0 ? errno : 0;
  ::close(descriptor);
  return error;
}

// 0, or the number of the error that opening this file for writing would end with.
int error_of_writing(const std::string& path) {
  if (path.empty()) return ENOENT;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return EISDIR;
  if (::access(path.c_str(), W_OK) == 0) return error_of_device(path);
  if (errno != ENOENT) return errno;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path() / ".";
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

}  // namespace

void add_integer(CLI::App& app, const std::string& name, Bounds<int64_t> bounds,
                 const std::string& help, std::function<void(int64_t)> set) {
  const auto read = [name, bounds, set = std::move(set)](const std::string& text) {
    const auto number = parse_int(text);
    if (!number || *number < bounds.least || *number > bounds.most) {
      fail(ErrorKind::usage, "{}: expected an integer from {} to {}, found {}", name, bounds.least,
           bounds.most, in_quotes(text));
    }
    set(*number);
  };
  app.add_option_function<std::string>(name, read, help)->type_name("N");
}

CLI::Option* add_integers(CLI::App& app, const std::string& name, Bounds<int64_t> bounds,
                          const std::string& help, std::vector<int64_t>& values) {
  const auto read = [name, bounds, &values](const std::string& text) {
    values.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const auto number = parse_int(std::string_view(text).substr(begin, end - begin));
      if (!number || *number < bounds.least || *number > bounds.most) {
        fail(ErrorKind::usage, "{}: expected integers from {} to {} with commas between, found {}",
             name, bounds.least, bounds.most, in_quotes(text));
      }
      values.push_back(*number);
      begin = end + 1;
    }
  };
  return app.add_option_function<std::string>(name, read, help)->type_name("N,N,...");
}

void add_number(CLI::App& app, const std::string& name, Bounds<double> bounds,
                const std::string& help, std::function<void(double)> set) {
  const auto read = [name, bounds, set = std::move(set)](const std::string& text) {
    const auto number = parse_double(text);
    if (!number || *number < bounds.least || *number > bounds.most) {
      fail(ErrorKind::usage, "{}: expected a number from {} to {}, found {}", name, bounds.least,
           bounds.most, in_quotes(text));
    }
    set(*number);
  };
  app.add_option_function<std::string>(name, read, help)->type_name("X");
}

CLI::Option* add_output_file(CLI::App& app, const std::string& names, const std::string& type,
                             const std::string& help, std::string& file) {
  const auto read = [option = names.substr(0, names.find(',')), &file](const std::string& path) {
    if (const int error = error_of_writing(path); error != 0) {
      fail(
          ErrorKind::usage,
          "{}: expected a file that can be written, found {}: {}; name one in a folder that exists "
          "and is yours to write",
          option, in_quotes(path, 300), std::strerror(error));
    }
    file = path;
  };
  return app.add_option_function<std::string>(names, read, help)->type_name(type);
}

void add_size(CLI::App& app, const std::string& name, const std::string& help,
              std::function<void(uint64_t)> set) {
  const auto read = [name, set = std::move(set)](const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (!bytes) {
      fail(ErrorKind::usage, "{}: expected a size such as 3GiB, 512MiB or 20GB, found {}", name,
           in_quotes(text));
    }
    set(*bytes);
  };
  app.add_option_function<std::string>(name, read, help)->type_name("SIZE");
}

namespace {

constexpr std::string_view kStandardInput = "standard input";

// Appends the bytes of one read to text; false at the end of the input.
bool read_more(int descriptor, std::string_view what, uint64_t max_bytes, std::string& text) {
  char chunk[65536];
  while (true) {
    const ssize_t got = ::read(descriptor, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::usage, "{}: cannot be read: {}", what, std::strerror(errno));
    text.append(chunk, static_cast<size_t>(got));
    if (text.size() > max_bytes) {
      fail(ErrorKind::usage, "{}: expected at most {}", what, format_bytes(max_bytes));
    }
    return got > 0;
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string read_argument_file(const std::string& path, std::string_view option,
                               uint64_t max_bytes) {
  if (path == "-") return read_standard_input(max_bytes);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::string what = fmt::format("{} {}", option, in_quotes(path, 300));
  if (descriptor < 0) {
    fail(ErrorKind::usage, "{}: cannot be opened: {}", what, std::strerror(errno));
  }
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } const closer{descriptor};
  std::string text;
  while (read_more(descriptor, what, max_bytes, text)) {
  }
  return text;
}

std::string read_standard_input(uint64_t max_bytes) {
  std::string text;
  while (read_more(STDIN_FILENO, kStandardInput, max_bytes, text)) {
  }
  return text;
}

std::string text_or_sample(const std::string& path, std::string_view option, uint64_t max_bytes) {
  return path.empty() ? std::string(sample_text()) : read_argument_file(path, option, max_bytes);
}

std::optional<std::string> LineReader::next() {
  size_t searched = at_;
  size_t end = 0;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    buffer_.erase(0, std::exchange(at_, 0));
    searched = buffer_.size();
    if (!read_more(STDIN_FILENO, kStandardInput, max_line_bytes_, buffer_)) break;
  }
  if (at_ == buffer_.size()) return std::nullopt;
  end = std::min(end, buffer_.size());
  std::string line = buffer_.substr(at_, end - at_);
  at_ = std::min(end + 1, buffer_.size());
  return line;
}

void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      fail(ErrorKind::internal, "standard output: writing failed: {}", std::strerror(errno));
    }
    text.remove_prefix(static_cast<size_t>(wrote));
  }
}

void write_argument_file(const std::string& path, std::string_view option,
                         const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  if (out) write(out);
  out.flush();
  if (!out) {
    fail(ErrorKind::internal, "{}: {} cannot be written: {}", option, in_quotes(path, 300),
         errno == 0 ? "unknown reason" : std::strerror(errno));
  }
}

void write_err(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

bool err_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

size_t err_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

StatusLine::StatusLine(std::string label, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), started_(seconds_now()) {}

StatusLine::~StatusLine() {
  if (visible_) write_err("\r\033[K");
}

void StatusLine::update(uint64_t done, uint64_t total, std::string_view remark) {
  const double now = seconds_now();
  const bool terminal = err_is_terminal();
  const double last = shown_ == 0.0 ? started_ : shown_;
  const double pause = !terminal ? 10.0 : shown_ == 0.0 ? 1.0 : 0.1;  // seconds
  if (now - last < pause) return;
  shown_ = now;
  visible_ = terminal;
  const double share = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
  const std::string counts = unit_ == "bytes"
                                 ? fmt::format("{} of {}", format_bytes(done), format_bytes(total))
                                 : fmt::format("{} of {} {}", done, total, unit_);
  const std::string line = fmt::format("{} {:3.0f} %  {}{}{}", label_, 100.0 * share, counts,
                                       remark.empty() ? "" : "  ", remark);
  // A line that wraps could not be erased. Labels, counts and remarks are ASCII.
  write_err(terminal ? "\r\033[K" + line.substr(0, err_columns() - 1) : line + "\n");
}

}  // namespace klotski
