#include "server/api.h"

#include <array>
#include <charconv>

#include "engine/prompt.h"
#include "server/dashboard.h"
#include "server/run_in.h"

namespace klotski {

namespace {

constexpr std::string_view kModelsPath = "/v1/models";

std::string_view text_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string_view path_of(const HttpHeader& header) {
  const std::string_view target = text_of(header.target());
  return target.substr(0, target.find('?'));
}

// The text with %XX replaced by the bytes it stands for; wrong ones stay as they are.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const begin = text.data() + i + 1;
    const bool escaped = text[i] == '%' && i + 2 < text.size() &&
                         std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2;
    decoded += escaped ? static_cast<char>(value) : text[i];
    if (escaped) i += 2;
  }
  return decoded;
}

// Whether the path is the pattern's, in which a segment "*" stands for any other.
bool matches(std::string_view pattern, std::string_view path) {
  for (;;) {
    const std::string_view wanted = pattern.substr(0, pattern.find('/', 1));
    const std::string_view found = path.substr(0, path.find('/', 1));
    if (wanted == "/*" ? found.size() < 2 : wanted != found) return false;
    pattern.remove_prefix(wanted.size());
    path.remove_prefix(found.size());
    if (pattern.empty() || path.empty()) return pattern.empty() && path.empty();
  }
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

}  // namespace

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected);
  }
  return difference == 0 && !key.empty();
}

Api::Api(const ServedModel& served, EngineThread& engine, Metrics& metrics,
         asio::io_context& preparation, ApiOptions options)
    : served_(served),
      engine_(engine),
      metrics_(metrics),
      preparation_(preparation),
      options_(std::move(options)) {}

// The page of `/` holds no figures; it asks for the key that /stats wants.
const Api::Route* Api::find_route(const HttpHeader& header) {
  using http::verb;
  static constexpr std::array kRoutes = {
      Route{"/v1/chat/completions", verb::post, true, &Api::chat, Body::json},
      Route{"/v1/completions", verb::post, true, &Api::completions, Body::json},
      Route{kModelsPath, verb::get, true, &Api::models},
      Route{"/v1/files", verb::get, true, &Api::list_files},
      Route{"/v1/files", verb::post, true, &Api::upload_file, Body::form},
      Route{"/v1/files/*", verb::get, true, &Api::retrieve_file},
      Route{"/v1/files/*", verb::delete_, true, &Api::delete_file},
      Route{"/v1/files/*/content", verb::get, true, &Api::download_file},
      Route{"/v1/batches", verb::get, true, &Api::list_batches},
      Route{"/v1/batches", verb::post, true, &Api::create_batch, Body::json},
      Route{"/v1/batches/*", verb::get, true, &Api::retrieve_batch},
      Route{"/v1/batches/*/cancel", verb::post, true, &Api::cancel_batch},
      Route{"/tokenize", verb::post, true, &Api::tokenize, Body::json},
      Route{"/detokenize", verb::post, true, &Api::detokenize, Body::json},
      Route{"/health", verb::get, false, &Api::health},
      Route{"/ready", verb::get, false, &Api::ready},
      Route{"/metrics", verb::get, true, &Api::prometheus},
      Route{"/stats", verb::get, true, &Api::stats},
      Route{"/", verb::get, false, &Api::dashboard},
  };
  const std::string_view path = path_of(header);
  const bool one_model = path.starts_with(kModelsPath) && path.substr(kModelsPath.size(), 1) == "/";
  const verb method = header.method() == verb::head ? verb::get : header.method();
  const Route* of_path = nullptr;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path) && !(one_model && route.path == kModelsPath)) continue;
    if (route.method == method) return &route;
    of_path = &route;
  }
  return of_path;
}

// The methods that the path of a request takes, with commas between.
std::string Api::methods_of(HttpHeader header) {
  std::string methods;
  for (const http::verb method : {http::verb::get, http::verb::post, http::verb::delete_}) {
    header.method(method);
    const Route* const route = find_route(header);
    if (!route || route->method != method) continue;
    methods += methods.empty() ? "" : ", ";
    methods += text_of(to_string(method));
  }
  return methods;
}

void Api::check_key(const HttpHeader& header) const {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = text_of(header[http::field::authorization]);
  bool known = options_.keys.empty();
  if (given.size() >= kScheme.size() &&
      equal_ignoring_case(given.substr(0, kScheme.size()), kScheme)) {
    for (const std::string& key : options_.keys) {
      known = equal_in_constant_time(given.substr(kScheme.size()), key) || known;
    }
  }
  if (!known) {
    throw ApiError(Status::unauthorized,
                   "expected the header Authorization: Bearer KEY with a key of this server", "",
                   "invalid_api_key");
  }
}

void Api::check_body(const HttpHeader& header, Body expected) const {
  const std::string_view type = text_of(header[http::field::content_type]);
  const std::string_view essence = type.substr(0, type.find_first_of("; \t"));
  const std::string_view wanted =
      expected == Body::json ? "application/json" : "multipart/form-data";
  if (!equal_ignoring_case(essence, wanted)) {
    throw ApiError(Status::unsupported_media_type,
                   fmt::format("expected the header Content-Type: {}", wanted));
  }
  const std::string_view encoding = text_of(header[http::field::content_encoding]);
  if (!encoding.empty() && !equal_ignoring_case(encoding, "identity")) {
    throw ApiError(Status::unsupported_media_type, "expected a body without Content-Encoding");
  }
}

bool Api::ready_now() const { return engine_.state() == EngineState::ready && !stopping_; }

void Api::check(const HttpHeader& header) const {
  const Route* const route = find_route(header);
  if (!route || route->needs_key) check_key(header);
  if (!route) {
    throw ApiError(Status::not_found,
                   fmt::format("there is no {}", in_quotes(text_of(header.target()))), "",
                   "unknown_url");
  }
  const bool reads = route->method == http::verb::get && header.method() == http::verb::head;
  if (header.method() != route->method && !reads) {
    throw ApiError(Status::method_not_allowed,
                   fmt::format("expected the method {}", methods_of(header)));
  }
  const std::string_view expectation = text_of(header[http::field::expect]);
  if (!expectation.empty() && !equal_ignoring_case(expectation, "100-continue")) {
    throw ApiError(Status::expectation_failed, "expected 100-continue as the value of Expect");
  }
  if (route->body != Body::none) check_body(header, route->body);
  if (route->handle == &Api::chat || route->handle == &Api::completions) {
    if (!ready_now()) {
      throw ApiError(Status::unavailable, "the model is not loaded", "", "not_ready");
    }
    if (!engine_.has_room(1)) {
      throw ApiError(Status::too_many_requests, "the queue is full; try again later", "",
                     "queue_full");
    }
  }
}

std::optional<HttpResponse> Api::refuse(const HttpHeader& header) {
  try {
    check(header);
    return std::nullopt;
  } catch (const ApiError& error) {
    const Route* const route = find_route(header);
    HttpResponse response = error_response(route ? route->path : "other", error);
    if (error.status() == Status::method_not_allowed) {
      response.fields.emplace_back("Allow", methods_of(header));
    }
    return response;
  }
}

uint64_t Api::body_limit(const HttpHeader& header, const HttpLimits& limits) {
  const Route* const route = find_route(header);
  return route && route->body == Body::form ? limits.upload_bytes : limits.body_bytes;
}

HttpResponse Api::unreadable(const ApiError& error) { return error_response("other", error); }

HttpResponse Api::error_response(std::string_view path, const ApiError& error) {
  metrics_.count_response(path, static_cast<int>(error.status()));
  HttpResponse response{.status = static_cast<int>(error.status()),
                        .body = json_text(error_body(error))};
  if (error.status() == Status::too_many_requests || error.status() == Status::unavailable) {
    response.fields.emplace_back("Retry-After", "1");
  }
  if (error.status() == Status::unauthorized) {
    response.fields.emplace_back("WWW-Authenticate", "Bearer");
  }
  return response;
}

asio::awaitable<void> Api::handle(Connection& connection, HttpRequest request) {
  const Route* const route = find_route(request);
  co_await (this->*route->handle)(connection, request);
}

asio::awaitable<void> Api::reply(Connection& connection, std::string_view path,
                                 HttpResponse response) {
  metrics_.count_response(path, response.status);
  co_await connection.respond(std::move(response));
}

asio::awaitable<void> Api::prepared(Connection& connection, std::string_view path,
                                    std::function<OrderedJson()> make) {
  std::string body;
  const std::function<void()> work = [&] { body = json_text(make()); };
  const std::optional<ApiError> error = co_await run_in(preparation_, work);
  if (error) {
    HttpResponse refusal = error_response(path, *error);
    co_await connection.respond(std::move(refusal));
    co_return;
  }
  HttpResponse response{.body = std::move(body)};
  co_await reply(connection, path, std::move(response));
}

asio::awaitable<void> Api::chat(Connection& connection, HttpRequest& request) {
  co_await generate(connection, request, Endpoint::chat);
}

asio::awaitable<void> Api::completions(Connection& connection, HttpRequest& request) {
  co_await generate(connection, request, Endpoint::completions);
}

asio::awaitable<void> Api::models(Connection& connection, HttpRequest& request) {
  const std::string_view path = path_of(request);
  const OrderedJson model =
      model_object(served_.name, served_.created, served_.description().max_positions);
  HttpResponse response;
  if (path == kModelsPath) {
    response.body = json_text({{"object", "list"}, {"data", OrderedJson::array({model})}});
  } else if (percent_decoded(path.substr(kModelsPath.size() + 1)) == served_.name) {
    response.body = json_text(model);
  } else {
    const ApiError error(Status::not_found, "there is no such model", "model", "model_not_found");
    response = error_response(kModelsPath, error);
    co_await connection.respond(std::move(response));
    co_return;
  }
  co_await reply(connection, kModelsPath, std::move(response));
}

asio::awaitable<void> Api::tokenize(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&]() -> OrderedJson {
    const TokenizeCall call = parse_tokenize(request.body());
    std::vector<TokenId> tokens;
    if (!call.text) {
      tokens = chat_tokens(served_, call.messages, nullptr);
    } else if (call.add_special) {
      tokens =
          encode_text(served_.tokenizer, served_.config, served_.description(), *call.text, false);
    } else {
      tokens = served_.tokenizer.encode(*call.text, {.parse_special = false});
    }
    return {{"count", tokens.size()},
            {"max_model_len", served_.description().max_positions},
            {"tokens", std::move(tokens)}};
  };
  co_await prepared(connection, "/tokenize", make);
}

asio::awaitable<void> Api::detokenize(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&]() -> OrderedJson {
    const std::vector<TokenId> tokens = parse_detokenize(request.body());
    return {{"prompt", served_.tokenizer.decode(tokens)}};
  };
  co_await prepared(connection, "/detokenize", make);
}

asio::awaitable<void> Api::health(Connection& connection, HttpRequest&) {
  HttpResponse response{.body = R"({"status":"ok"})"};
  co_await reply(connection, "/health", std::move(response));
}

asio::awaitable<void> Api::ready(Connection& connection, HttpRequest&) {
  const bool ready = ready_now();
  HttpResponse response{.status = ready ? 200 : 503,
                        .body = ready ? R"({"status":"ready"})" : R"({"status":"not ready"})"};
  co_await reply(connection, "/ready", std::move(response));
}

asio::awaitable<void> Api::prometheus(Connection& connection, HttpRequest&) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_.prometheus(connections ? connections() : 0)};
  co_await reply(connection, "/metrics", std::move(response));
}

asio::awaitable<void> Api::stats(Connection& connection, HttpRequest&) {
  const auto now = Metrics::Clock::now();
  OrderedJson figures = metrics_.stats(now);
  figures["model"] = served_.name;
  figures["ready"] = ready_now();
  figures["uptime_seconds"] = std::chrono::duration<double>(now - started_).count();
  figures["connections"] = connections ? connections() : 0;
  HttpResponse response{.body = json_text(figures)};
  co_await reply(connection, "/stats", std::move(response));
}

asio::awaitable<void> Api::dashboard(Connection& connection, HttpRequest&) {
  HttpResponse response{.content_type = "text/html; charset=utf-8",
                        .body = std::string(dashboard_page())};
  response.fields.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
      "connect-src 'self'");
  co_await reply(connection, "/", std::move(response));
}

}  // namespace klotski
