// Clients that are slow, silent or gone, and a server whose limits are short.

#include "server/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/verb.hpp>
#include <future>
#include <thread>

namespace klotski {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

// Answers at once; a POST to /events gets events until its reader is gone.
class Endless final : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpHeader&) override { return std::nullopt; }
  uint64_t body_limit(const HttpHeader&, const HttpLimits& limits) override {
    return limits.body_bytes;
  }
  asio::awaitable<void> handle(Connection& connection, HttpRequest request) override {
    if (request.target() != "/events") {
      HttpResponse response{.body = "ok"};  // named: g++ 12 destroys an unnamed one twice
      co_await connection.respond(std::move(response));
      co_return;
    }
    ++streams;
    co_await connection.begin_events();
    const std::string event(64 * 1024, 'x');
    while (!connection.gone()) co_await connection.send_events(event);
    --streams;
  }
  HttpResponse unreadable(const ApiError& error) override {
    return {.status = static_cast<int>(error.status()), .body = error.what()};
  }

  std::atomic<int> streams = 0;
};

constexpr std::string_view kOk = "GET /ok HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr std::string_view kEvents =
    "POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

// Longer than a busy machine keeps a thread waiting, much shorter than a test may take.
constexpr std::chrono::milliseconds kShort(300);

class HttpServerTest : public ::testing::Test {
 protected:
  ~HttpServerTest() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void start(const HttpLimits& limits = {.body_bytes = 1000,
                                         .upload_bytes = 1000,
                                         .idle = kShort,
                                         .header = kShort,
                                         .body = kShort,
                                         .write = kShort,
                                         .linger = kShort}) {
    limits_ = limits;
    const std::string url = server_.listen("127.0.0.1", 0);
    endpoint_ = {asio::ip::make_address("127.0.0.1"),
                 static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)))};
    thread_ = std::thread([this] { server_.run([] {}); });
  }

  tcp::socket client(std::string_view sent = {}) {
    tcp::socket socket(clients_);
    socket.connect(endpoint_);
    asio::write(socket, asio::buffer(sent));
    return socket;
  }
  // All that the server sends until it closes.
  static std::string rest(tcp::socket& socket) {
    std::string text;
    error_code end;
    asio::read(socket, asio::dynamic_buffer(text), end);
    return text;
  }
  size_t connections() {
    std::promise<size_t> count;
    asio::post(io_, [&] { count.set_value(server_.connections()); });
    return count.get_future().get();
  }
  void await_no_connections() {
    while (connections() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  HttpLimits limits_;
  Endless handler_;
  asio::io_context io_{1};
  asio::io_context clients_;
  HttpServer server_{io_, limits_, handler_};
  tcp::endpoint endpoint_;
  std::thread thread_;
};

TEST_F(HttpServerTest, SilentConnectionsEnd) {
  start();
  std::vector<tcp::socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(client());
  tcp::socket answered = client(kOk);
  EXPECT_EQ(rest(answered).substr(0, 15), "HTTP/1.1 200 OK") << "then it is idle too";
  for (tcp::socket& socket : silent) EXPECT_EQ(rest(socket), "");
  await_no_connections();
}

TEST_F(HttpServerTest, SlowHeadsAndBodiesEndHoweverSteadilyTheyCome) {
  start();
  for (const std::string& begin :
       {std::string("GET /ok HTTP/1.1\r\nA: "),
        std::string("POST /ok HTTP/1.1\r\nContent-Length: 900\r\n\r\n"),
        std::string("POST /ok HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n")}) {
    tcp::socket slow = client(begin);
    error_code gone;
    int sent = 0;
    for (; !gone && sent < 900; ++sent) {
      asio::write(slow, asio::buffer("a", 1), gone);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_LT(sent, 900) << begin;
  }
  await_no_connections();
}

TEST_F(HttpServerTest, AReaderThatStopsLosesItsStream) {
  start();
  std::vector<tcp::socket> readers;
  for (int i = 0; i < 5; ++i) readers.push_back(client(kEvents));
  for (tcp::socket& reader : readers) {
    std::array<char, 15> head{};
    asio::read(reader, asio::buffer(head));
    EXPECT_EQ(std::string(head.data(), head.size()), "HTTP/1.1 200 OK");
  }
  await_no_connections();  // none of them reads on
  EXPECT_EQ(handler_.streams, 0);
  tcp::socket other = client(kOk);
  EXPECT_EQ(rest(other).substr(0, 15), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, AReaderThatHalfClosesOrResetsEndsItsStream) {
  start();
  for (const bool resets : {false, true}) {
    tcp::socket reader = client(kEvents);
    std::array<char, 15> head{};
    asio::read(reader, asio::buffer(head));
    if (resets) {
      reader.set_option(asio::socket_base::linger(true, 0));
      reader.close();
    } else {
      reader.shutdown(tcp::socket::shutdown_send);
      rest(reader);
    }
    await_no_connections();
    EXPECT_EQ(handler_.streams, 0);
  }
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSo) {
  start({.connections = 5});
  std::vector<tcp::socket> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(client(kEvents));
  while (handler_.streams < 5) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  tcp::socket one_more = client(kOk);
  EXPECT_EQ(rest(one_more).substr(0, 12), "HTTP/1.1 503");
}

}  // namespace
}  // namespace klotski
