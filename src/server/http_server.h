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

  // Throws (usage) for an address that cannot be listened on. Port 0: the system picks one. Returns
  // "http://ADDRESS:PORT".
  std::string listen(const std::string& host, uint16_t port);
  // Accepts until stop_accepting(); `tick` is called about ten times a second.
  void start(std::function<void()> tick);

  // Closes the listening socket, and every connection that handles no request.
  void stop_accepting();
  size_t connections() const { return connections_.size(); }

 private:
  asio::awaitable<void> accept();
  asio::awaitable<void> sweep(std::function<void()> tick);
  asio::awaitable<void> serve(asio::ip::tcp::socket socket);

  asio::io_context& context_;
  const HttpLimits& limits_;
  HttpHandler& handler_;
  asio::ip::tcp::acceptor acceptor_;
  std::list<std::shared_ptr<Connection>> connections_;
};

}  // namespace klotski
