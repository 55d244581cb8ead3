#include "server/multipart.h"

#include <algorithm>
#include <cctype>

#include "server/api_error.h"

namespace klotski {

namespace {

constexpr size_t kMostParts = 16;
constexpr size_t kMostBoundaryBytes = 70;  // by RFC 2046
constexpr size_t kMostPartHeadBytes = 4096;

[[noreturn]] void refuse_form(std::string_view expected) {
  throw ApiError(Status::bad_request,
                 fmt::format("expected {} in the multipart/form-data body", expected));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// The value of a parameter such as name="file"; empty where there is none. Quotes may be left out;
// a backslash before a quote stands for the quote.
std::string parameter(std::string_view text, std::string_view key) {
  const std::string lower = lower_case(text);
  for (size_t at = 0; (at = lower.find(key, at)) != std::string::npos; at += key.size()) {
    const bool whole = at > 0 && (lower[at - 1] == ';' || lower[at - 1] == ' ') &&
                       at + key.size() < lower.size() && lower[at + key.size()] == '=';
    if (!whole) continue;
    std::string_view rest = text.substr(at + key.size() + 1);
    if (!rest.starts_with('"')) return std::string(rest.substr(0, rest.find_first_of("; \t\r\n")));
    std::string value;
    for (size_t i = 1; i < rest.size() && rest[i] != '"'; ++i) {
      if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
      value += rest[i];
    }
    return value;
  }
  return "";
}

// The value of a part's Content-Disposition.
std::string_view disposition(std::string_view head) {
  constexpr std::string_view kField = "content-disposition:";
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, end - at);
    if (lower_case(line.substr(0, kField.size())) == kField) return line.substr(kField.size());
    at = end + 2;
  }
  refuse_form("a Content-Disposition in every part");
}

}  // namespace

std::vector<FormPart> parse_form(std::string_view content_type, std::string_view body) {
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > kMostBoundaryBytes) {
    throw ApiError(Status::unsupported_media_type,
                   "expected the header Content-Type: multipart/form-data with a boundary");
  }
  const std::string mark = "\r\n--" + boundary;
  std::vector<FormPart> parts;
  // The first mark may stand at the very beginning.
  size_t at = body.starts_with(std::string_view(mark).substr(2)) ? 0 : body.find(mark);
  if (at == std::string_view::npos) refuse_form("the boundary");
  at += at == 0 && !body.starts_with("\r\n") ? mark.size() - 2 : mark.size();
  while (!body.substr(at).starts_with("--")) {
    if (parts.size() == kMostParts) refuse_form(fmt::format("at most {} parts", kMostParts));
    if (!body.substr(at).starts_with("\r\n")) refuse_form("a line end behind each boundary");
    at += 2;
    const size_t head_end = body.substr(at, kMostPartHeadBytes).find("\r\n\r\n");
    if (head_end == std::string_view::npos) refuse_form("a short head in every part");
    const std::string_view head = body.substr(at, head_end);
    at += head_end + 4;
    const size_t end = body.find(mark, at);
    if (end == std::string_view::npos) refuse_form("a boundary at the end");
    const std::string_view names = disposition(head);
    parts.push_back({.name = parameter(names, "name"),
                     .filename = parameter(names, "filename"),
                     .content = body.substr(at, end - at)});
    at = end + mark.size();
  }
  return parts;
}

}  // namespace klotski
