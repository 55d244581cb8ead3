#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/connection.h"
#include "server/engine_thread.h"
#include "server/generation.h"
#include "server/job_store.h"
#include "server/metrics.h"
#include "server/openai_responses.h"
#include "server/served_model.h"
#include "server/server_options.h"

namespace klotski {

// The endpoints of a server. Runs on the I/O thread; bodies are parsed and tokenised by whoever
// runs the `preparation` context.
class Api final : public HttpHandler {
 public:
  // The references must live longer.
  Api(const ServedModel& served, EngineThread& engine, Metrics& metrics,
      asio::io_context& preparation, ApiOptions options);

  std::optional<HttpResponse> refuse(const HttpHeader& header) override;
  asio::awaitable<void> handle(Connection& connection, HttpRequest request) override;
  HttpResponse unreadable(const ApiError& error) override;
  uint64_t body_limit(const HttpHeader& header, const HttpLimits& limits) override;

  // From now on /ready says no and requests for text are refused.
  void set_stopping() { stopping_ = true; }
  std::function<int64_t()> connections;  // open ones, for /metrics
  JobStore* jobs = nullptr;              // null: /v1/files and /v1/batches are refused

 private:
  enum class Body { none, json, form };
  // A path with a method that it takes; a segment "*" stands for any id.
  struct Route {
    std::string_view path;
    http::verb method;
    bool needs_key;
    asio::awaitable<void> (Api::*handle)(Connection&, HttpRequest&);
    Body body = Body::none;
  };

  // The route of a request; one of the path with another method where none takes the method, null
  // where there is no such path.
  static const Route* find_route(const HttpHeader& header);
  static std::string methods_of(HttpHeader header);
  void check(const HttpHeader& header) const;
  void check_key(const HttpHeader& header) const;
  void check_body(const HttpHeader& header, Body expected) const;
  HttpResponse error_response(std::string_view path, const ApiError& error);
  // Answers with a document that `make` makes where bodies are prepared.
  asio::awaitable<void> prepared(Connection& connection, std::string_view path,
                                 std::function<OrderedJson()> make);
  asio::awaitable<void> reply(Connection& connection, std::string_view path, HttpResponse response);

  asio::awaitable<void> chat(Connection& connection, HttpRequest& request);
  asio::awaitable<void> completions(Connection& connection, HttpRequest& request);
  asio::awaitable<void> models(Connection& connection, HttpRequest& request);
  asio::awaitable<void> tokenize(Connection& connection, HttpRequest& request);
  asio::awaitable<void> detokenize(Connection& connection, HttpRequest& request);
  asio::awaitable<void> health(Connection& connection, HttpRequest& request);
  asio::awaitable<void> ready(Connection& connection, HttpRequest& request);
  asio::awaitable<void> prometheus(Connection& connection, HttpRequest& request);
  asio::awaitable<void> stats(Connection& connection, HttpRequest& request);
  asio::awaitable<void> dashboard(Connection& connection, HttpRequest& request);

  asio::awaitable<void> list_files(Connection& connection, HttpRequest& request);
  asio::awaitable<void> upload_file(Connection& connection, HttpRequest& request);
  asio::awaitable<void> retrieve_file(Connection& connection, HttpRequest& request);
  asio::awaitable<void> delete_file(Connection& connection, HttpRequest& request);
  asio::awaitable<void> download_file(Connection& connection, HttpRequest& request);
  asio::awaitable<void> list_batches(Connection& connection, HttpRequest& request);
  asio::awaitable<void> create_batch(Connection& connection, HttpRequest& request);
  asio::awaitable<void> retrieve_batch(Connection& connection, HttpRequest& request);
  asio::awaitable<void> cancel_batch(Connection& connection, HttpRequest& request);

  asio::awaitable<void> generate(Connection& connection, HttpRequest& request, Endpoint endpoint);
  asio::awaitable<void> stream(Connection& connection, Generation& generation);
  asio::awaitable<void> collect(Connection& connection, Generation& generation);
  asio::awaitable<std::vector<ChoiceUpdate>> next_updates(Connection& connection,
                                                          Generation& generation);
  bool ready_now() const;

  const ServedModel& served_;
  EngineThread& engine_;
  Metrics& metrics_;
  asio::io_context& preparation_;
  const ApiOptions options_;
  const Metrics::Clock::time_point started_ = Metrics::Clock::now();
  bool stopping_ = false;
  uint64_t requests_ = 0;
};

// Whether the two are equal, in a time that depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view key);

}  // namespace klotski
