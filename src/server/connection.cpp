#include "server/connection.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

namespace klotski {

namespace {

using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 4096;
constexpr size_t kMostPipelinedBytes = 64 * 1024;  // of later requests, while one is answered
constexpr size_t kMostLingerBytes = 4 * 1024 * 1024;

ApiError as_refusal(error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {Status::header_too_large, "the head of the request is too large"};
  }
  if (error == http::error::body_limit) {
    return {Status::too_large, "the body of the request is too large"};
  }
  return {Status::bad_request, fmt::format("not an HTTP request: {}", error.message())};
}

bool is_malformed(error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, const HttpLimits& limits, HttpHandler& handler)
    : socket_(std::move(socket)),
      limits_(limits),
      handler_(handler),
      buffer_(limits.header_bytes + kMostPipelinedBytes),
      watch_ended_(socket_.get_executor()) {}

void Connection::expire(Clock::time_point now) {
  if (deadline_ && *deadline_ < now) close();
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  set_gone();
}

void Connection::end_after_request() {
  last_ = true;
  if (!handling_) close();
}

void Connection::set_gone() {
  gone_ = true;
  if (on_gone) on_gone();
}

asio::awaitable<void> Connection::serve() {
  bool more = true;
  while (more && !last_ && !gone_) more = co_await serve_one();
  close();
}

asio::awaitable<void> Connection::refuse_and_close(HttpResponse response) {
  keep_alive_ = false;
  co_await respond(std::move(response));
  co_await linger();
  close();
}

// Whether bytes of a request have come.
asio::awaitable<bool> Connection::await_request() {
  handling_ = false;
  if (buffer_.size() == 0) {
    allow(limits_.idle);
    auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) co_return false;
    buffer_.commit(bytes);
  }
  handling_ = true;
  co_return true;
}

// Whether another request may follow.
asio::awaitable<bool> Connection::serve_one() {
  const bool came = co_await await_request();
  if (!came) co_return false;
  head_only_ = false;
  Parser parser;
  parser.header_limit(limits_.header_bytes);
  parser.body_limit(std::max(limits_.body_bytes, limits_.upload_bytes));
  allow(limits_.header);
  auto [error, bytes] = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
  if (error) {
    co_await refuse_unreadable(error);
    co_return false;
  }
  keep_alive_ = parser.get().keep_alive();
  head_only_ = parser.get().method() == http::verb::head;
  chunked_ = parser.get().version() >= 11;
  if (auto refusal = handler_.refuse(parser.get().base())) {
    if (!parser.is_done()) keep_alive_ = false;  // the body is not read
    co_await respond(std::move(*refusal));
    if (!keep_alive_) co_await linger();
    co_return keep_alive_;
  }
  const uint64_t most_bytes = handler_.body_limit(parser.get().base(), limits_);
  if (parser.content_length().value_or(0) > most_bytes) {
    co_await refuse_unreadable(http::error::body_limit);
    co_return false;
  }
  parser.body_limit(most_bytes);
  const bool complete = co_await read_body(parser);
  if (!complete) co_return false;
  co_await answer(parser.release());
  co_return keep_alive_ && !gone_;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  const auto expectation = parser.get().find(http::field::expect);
  if (expectation != parser.get().end() && !parser.is_done()) {
    co_await write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  allow(limits_.body);
  auto [error, bytes] = co_await http::async_read(socket_, buffer_, parser, kAwait);
  if (error) co_await refuse_unreadable(error);
  co_return !error;
}

asio::awaitable<void> Connection::refuse_unreadable(error_code error) {
  if (!is_malformed(error)) co_return;  // the client went away
  keep_alive_ = false;
  co_await respond(handler_.unreadable(as_refusal(error)));
  co_await linger();
}

asio::awaitable<void> Connection::answer(HttpRequest request) {
  deadline_.reset();
  watching_ = true;
  watch_ends_ = false;
  asio::co_spawn(
      socket_.get_executor(),
      [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->watch(); },
      asio::detached);
  co_await handler_.handle(*this, std::move(request));
  on_gone = nullptr;
  co_await stop_watching();
}

// Reads while a request is answered, to notice a client that goes; bytes of later requests are
// kept.
asio::awaitable<void> Connection::watch() {
  while (buffer_.size() < kMostPipelinedBytes) {
    auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    buffer_.commit(bytes);
    if (error && !watch_ends_) set_gone();
    if (error || watch_ends_) break;
  }
  watching_ = false;
  watch_ended_.cancel();
}

asio::awaitable<void> Connection::stop_watching() {
  watch_ends_ = true;
  error_code ignored;
  if (watching_) socket_.cancel(ignored);
  while (watching_) {
    watch_ended_.expires_at(asio::steady_timer::time_point::max());
    co_await watch_ended_.async_wait(kAwait);
  }
}

// Lets the client read a refusal: closing while its bytes arrive would destroy the response.
asio::awaitable<void> Connection::linger() {
  if (gone_) co_return;
  allow(limits_.linger);
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::array<char, kReadBytes> unread{};
  for (size_t read = 0; read < kMostLingerBytes;) {
    auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(unread), kAwait);
    if (error) break;
    read += bytes;
  }
}

asio::awaitable<void> Connection::write(std::string_view text) {
  if (gone_) co_return;
  allow(limits_.write);
  auto [error, bytes] = co_await asio::async_write(socket_, asio::buffer(text), kAwait);
  deadline_.reset();
  if (error) set_gone();
}

asio::awaitable<void> Connection::respond(HttpResponse response) {
  if (gone_) co_return;
  if (last_) keep_alive_ = false;
  http::response<http::string_body> message(static_cast<http::status>(response.status), 11);
  message.set(http::field::content_type, response.content_type);
  for (const auto& [field, value] : response.fields) message.set(field, value);
  message.keep_alive(keep_alive_);
  message.content_length(response.body.size());
  if (!head_only_) message.body() = std::move(response.body);
  http::response_serializer<http::string_body> serializer(message);
  allow(limits_.write);
  auto [error, bytes] = co_await http::async_write(socket_, serializer, kAwait);
  deadline_.reset();
  if (error) set_gone();
}

asio::awaitable<void> Connection::begin_events() {
  if (gone_) co_return;
  if (last_ || !chunked_) keep_alive_ = false;
  http::response<http::empty_body> message(http::status::ok, 11);
  message.set(http::field::content_type, "text/event-stream; charset=utf-8");
  message.set(http::field::cache_control, "no-cache");
  message.set("X-Accel-Buffering", "no");
  message.keep_alive(keep_alive_);
  message.chunked(chunked_);
  http::response_serializer<http::empty_body> serializer(message);
  allow(limits_.write);
  auto [error, bytes] = co_await http::async_write_header(socket_, serializer, kAwait);
  deadline_.reset();
  if (error) set_gone();
}

asio::awaitable<void> Connection::send_events(std::string_view text) {
  if (!chunked_) {
    co_await write(text);
    co_return;
  }
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  co_await write(chunk);
}

asio::awaitable<void> Connection::end_events() {
  if (chunked_) co_await write("0\r\n\r\n");
}

}  // namespace klotski
