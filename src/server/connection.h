#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/server_options.h"

namespace klotski {

namespace asio = boost::asio;
namespace http = boost::beast::http;

using HttpHeader = http::request_header<>;
using HttpRequest = http::request<http::string_body>;

// A whole response.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> fields{};
};

class Connection;

// Answers requests; called on the I/O thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Refuses a request by its head alone, before its body is read.
  virtual std::optional<HttpResponse> refuse(const HttpHeader& header) = 0;
  // The most bytes that the body of a request may have.
  virtual uint64_t body_limit(const HttpHeader& header, const HttpLimits& limits) = 0;
  // Writes one response to the connection.
  virtual asio::awaitable<void> handle(Connection& connection, HttpRequest request) = 0;
  // The response for a request that cannot be read.
  virtual HttpResponse unreadable(const ApiError& error) = 0;
};

// A client's connection: reads requests one after the other, writes responses. For one thread.
// Every phase has a deadline; expire(), called now and then, closes the connection when one has
// passed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(asio::ip::tcp::socket socket, const HttpLimits& limits, HttpHandler& handler);

  // Serves requests until either side closes.
  asio::awaitable<void> serve();
  // Writes one response and closes.
  asio::awaitable<void> refuse_and_close(HttpResponse response);

  void expire(Clock::time_point now);
  void close();
  // No further request after the one at hand; closes at once where there is none.
  void end_after_request();

  // For handlers.
  asio::awaitable<void> respond(HttpResponse response);
  asio::awaitable<void> begin_events();
  asio::awaitable<void> send_events(std::string_view text);
  asio::awaitable<void> end_events();
  // Whether the client is gone, or was closed; `on_gone` is told while a request is handled.
  bool gone() const { return gone_; }
  std::function<void()> on_gone;

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> await_request();
  asio::awaitable<bool> read_body(Parser& parser);
  asio::awaitable<void> answer(HttpRequest request);
  asio::awaitable<void> refuse_unreadable(boost::system::error_code error);
  asio::awaitable<void> write(std::string_view text);
  asio::awaitable<void> linger();
  asio::awaitable<void> watch();
  asio::awaitable<void> stop_watching();
  void allow(std::chrono::milliseconds time) { deadline_ = Clock::now() + time; }
  void set_gone();

  asio::ip::tcp::socket socket_;
  const HttpLimits& limits_;
  HttpHandler& handler_;
  boost::beast::flat_buffer buffer_;
  std::optional<Clock::time_point> deadline_;
  bool handling_ = false;  // a request is being read or answered
  bool keep_alive_ = true;
  bool head_only_ = false;  // the request's method is HEAD
  bool chunked_ = false;    // the response's events are chunks
  bool last_ = false;       // no further request is wanted
  bool gone_ = false;
  bool watching_ = false;
  bool watch_ends_ = false;  // the watch was asked to stop
  asio::steady_timer watch_ended_;
};

}  // namespace klotski
