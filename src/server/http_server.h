#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "server/connection.h"

namespace klotski {

// Accepts connections within the limits and closes those whose time is over. All members but the
// constructor and listen() are for the thread that runs the context.
class HttpServer {
 public:
  // The references must live longer.
  HttpServer(asio::io_context& context, const HttpLimits& limits, HttpHandler& handler);
  ~HttpServer() { connections_->served = false; }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Throws (usage) for an address that cannot be listened on. Port 0: the system picks one. Returns
  // "http://ADDRESS:PORT".
  std::string listen(const std::string& host, uint16_t port);
  // Runs the context until it is stopped, and calls `tick` about ten times a second. Clients are
  // accepted until stop_accepting(). Where memory runs out, what needed it is lost: a client, or
  // the rest of a tick.
  void run(const std::function<void()>& tick);

  // Closes the listening socket, and every connection that handles no request.
  void stop_accepting();
  size_t connections() const { return connections_->open.size(); }

 private:
  struct Connections {
    std::list<std::shared_ptr<Connection>> open;
    bool served = true;  // until the server is gone
  };
  class Listed;

  void look_after_clients();
  asio::awaitable<void> accept(std::shared_ptr<void> accepting);
  asio::awaitable<void> serve(asio::ip::tcp::socket socket);

  asio::io_context& context_;
  const HttpLimits& limits_;
  HttpHandler& handler_;
  asio::ip::tcp::acceptor acceptor_;
  std::weak_ptr<void> accepting_;  // expired: accept() does not run
  // Coroutines of serve() own the list as well: the context may destroy them after this object.
  std::shared_ptr<Connections> connections_ = std::make_shared<Connections>();
};

}  // namespace klotski
