#include "server/http_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace klotski {

namespace {

using asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kSweepEvery(100);

tcp::endpoint endpoint_of(const std::string& host, uint16_t port) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    fail(ErrorKind::usage, "--host: expected an IP address such as 127.0.0.1 or ::, found {}",
         in_quotes(host));
  }
  return {address, port};
}

}  // namespace

HttpServer::HttpServer(asio::io_context& context, const HttpLimits& limits, HttpHandler& handler)
    : context_(context), limits_(limits), handler_(handler), acceptor_(context) {}

std::string HttpServer::listen(const std::string& host, uint16_t port) {
  const tcp::endpoint wanted = endpoint_of(host, port);
  try {
    acceptor_.open(wanted.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(wanted);
    acceptor_.listen();
  } catch (const boost::system::system_error& error) {
    fail(ErrorKind::usage, "--host {} --port {}: cannot listen there: {}; choose another",
         in_quotes(host), port, error.code().message());
  }
  const tcp::endpoint bound = acceptor_.local_endpoint();
  const std::string address = bound.address().to_string();
  return bound.address().is_v6() ? fmt::format("http://[{}]:{}", address, bound.port())
                                 : fmt::format("http://{}:{}", address, bound.port());
}

void HttpServer::start(std::function<void()> tick) {
  asio::co_spawn(context_, accept(), asio::detached);
  asio::co_spawn(context_, sweep(std::move(tick)), asio::detached);
}

void HttpServer::stop_accepting() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& connection : connections_) connection->end_after_request();
}

asio::awaitable<void> HttpServer::accept() {
  while (acceptor_.is_open()) {
    tcp::socket socket(context_);
    auto [error] = co_await acceptor_.async_accept(socket, kTuple);
    if (!acceptor_.is_open()) break;
    if (error) {  // no descriptors are left, mostly: some will be when connections end
      asio::steady_timer pause(context_, kSweepEvery);
      co_await pause.async_wait(kTuple);
      continue;
    }
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    asio::co_spawn(context_, serve(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> HttpServer::serve(tcp::socket socket) {
  const bool full = connections_.size() >= limits_.connections;
  // A few more may be told so; beyond them connections are closed without a word.
  if (connections_.size() >= limits_.connections + limits_.connections / 8 + 1) co_return;
  auto connection = std::make_shared<Connection>(std::move(socket), limits_, handler_);
  const auto place = connections_.insert(connections_.end(), connection);
  try {
    if (full) {
      co_await connection->refuse_and_close(handler_.unreadable(
          {Status::unavailable, "too many connections are open", "", "too_many_connections"}));
    } else {
      co_await connection->serve();
    }
  } catch (const std::exception&) {  // memory ran out: this client is lost, others are not
    connection->close();
  }
  connections_.erase(place);
}

asio::awaitable<void> HttpServer::sweep(std::function<void()> tick) {
  asio::steady_timer timer(context_);
  while (true) {
    timer.expires_after(kSweepEvery);
    auto [error] = co_await timer.async_wait(kTuple);
    if (error) break;
    const auto now = Connection::Clock::now();
    for (const auto& connection : connections_) connection->expire(now);
    tick();
  }
}

}  // namespace klotski
