#include "server/http_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <thread>

namespace klotski {

namespace {

using asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kTickEvery(100);

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

// A connection among those that are open. Where memory runs out in the middle of an operation, the
// coroutine that waits for it is destroyed, not resumed: its client must not be kept waiting.
class HttpServer::Listed {
 public:
  Listed(std::shared_ptr<Connections> list, const std::shared_ptr<Connection>& connection)
      : list_(std::move(list)), place_(list_->open.insert(list_->open.end(), connection)) {}
  ~Listed() {
    if (list_->served) (*place_)->close();
    list_->open.erase(place_);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::shared_ptr<Connections> list_;
  std::list<std::shared_ptr<Connection>>::iterator place_;
};

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

void HttpServer::run(const std::function<void()>& tick) {
  const auto work = asio::make_work_guard(context_);
  while (!context_.stopped()) {
    try {
      look_after_clients();
      tick();
      context_.run_for(kTickEvery);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Closes connections whose time is over, and accepts clients again where accept() ended: memory or
// descriptors ran out while a client was accepted.
void HttpServer::look_after_clients() {
  const auto now = Connection::Clock::now();
  for (const auto& connection : connections_->open) connection->expire(now);
  if (!accepting_.expired() || !acceptor_.is_open()) return;
  auto accepting = std::make_shared<int>();
  accepting_ = accepting;
  asio::co_spawn(context_, accept(std::move(accepting)), asio::detached);
}

void HttpServer::stop_accepting() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& connection : connections_->open) connection->end_after_request();
}

// Holds `accepting` as long as it runs, or waits and has not been destroyed.
asio::awaitable<void> HttpServer::accept([[maybe_unused]] std::shared_ptr<void> accepting) {
  while (acceptor_.is_open()) {
    tcp::socket socket(context_);
    auto [error] = co_await acceptor_.async_accept(socket, kTuple);
    if (!acceptor_.is_open()) break;
    if (error) break;  // no descriptors are left, mostly: some will be when connections end
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    asio::co_spawn(context_, serve(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> HttpServer::serve(tcp::socket socket) {
  const bool full = connections() >= limits_.connections;
  // A few more may be told so; beyond them connections are closed without a word.
  if (connections() >= limits_.connections + limits_.connections / 8 + 1) co_return;
  auto connection = std::make_shared<Connection>(std::move(socket), limits_, handler_);
  const Listed listed(connections_, connection);
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
}

}  // namespace klotski
