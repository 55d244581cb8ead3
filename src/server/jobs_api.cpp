// Api's answers to requests for files and batches.

#include <charconv>

#include "server/api.h"
#include "server/multipart.h"
#include "server/run_in.h"

namespace klotski {

namespace {

constexpr int64_t kMostListed = 10000;

std::string_view target_of(const HttpRequest& request) {
  return {request.target().data(), request.target().size()};
}

JobStore& store_of(JobStore* jobs) {
  if (jobs) return *jobs;
  throw ApiError(
      Status::not_found,
      "this server keeps no files and batches: another one keeps those of this model, or "
      "there is no folder for them; start it with --jobs-folder FOLDER");
}

// The id in /v1/files/ID and /v1/batches/ID/cancel. Ids are compared with those that the server has
// made, and never become part of a path.
std::string id_of_path(const HttpRequest& request) {
  std::string_view path = target_of(request);
  path = path.substr(0, path.find('?'));
  path.remove_prefix(path.find('/', path.find('/', 1) + 1) + 1);
  return std::string(path.substr(0, path.find('/')));
}

// The value of a parameter of the query; empty where there is none.
std::string_view query_value(std::string_view target, std::string_view key) {
  const size_t begin = target.find('?');
  if (begin == std::string_view::npos) return "";
  for (std::string_view rest = target.substr(begin + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    if (pair.substr(0, pair.find('=')) == key)
      return pair.substr(std::min(pair.size(), key.size() + 1));
  }
  return "";
}

ListPage page_of(const HttpRequest& request) {
  ListPage page;
  page.after = query_value(target_of(request), "after");
  const std::string_view limit = query_value(target_of(request), "limit");
  if (limit.empty()) return page;
  const char* const end = limit.data() + limit.size();
  const auto [read, error] = std::from_chars(limit.data(), end, page.limit);
  if (error != std::errc() || read != end || page.limit < 1 || page.limit > kMostListed) {
    throw ApiError(Status::bad_request,
                   fmt::format("limit: expected a number from 1 to {}", kMostListed), "limit");
  }
  return page;
}

OrderedJson add_uploaded(JobStore& store, const HttpRequest& request) {
  const auto type = request[http::field::content_type];
  std::string purpose;
  const FormPart* file = nullptr;
  const std::vector<FormPart> parts = parse_form({type.data(), type.size()}, request.body());
  for (const FormPart& part : parts) {
    if (part.name == "purpose") purpose = part.content;
    if (part.name == "file") file = &part;
  }
  if (!file) throw ApiError(Status::bad_request, "file: expected a file in the form", "file");
  if (purpose != "batch") {
    throw ApiError(Status::bad_request, "purpose: only batch is supported", "purpose");
  }
  return store.add_file(file->filename.substr(0, 255), purpose, file->content);
}

}  // namespace

asio::awaitable<void> Api::list_files(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] { return store_of(jobs).files(page_of(request)); };
  co_await prepared(connection, "/v1/files", make);
}

asio::awaitable<void> Api::upload_file(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] { return add_uploaded(store_of(jobs), request); };
  co_await prepared(connection, "/v1/files", make);
}

asio::awaitable<void> Api::retrieve_file(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).file(id_of_path(request));
  };
  co_await prepared(connection, "/v1/files", make);
}

asio::awaitable<void> Api::delete_file(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).remove_file(id_of_path(request));
  };
  co_await prepared(connection, "/v1/files", make);
}

asio::awaitable<void> Api::download_file(Connection& connection, HttpRequest& request) {
  HttpResponse response{.content_type = "application/octet-stream", .body = {}};
  const std::function<void()> work = [&] {
    response.body = store_of(jobs).content(id_of_path(request));
  };
  if (const std::optional<ApiError> error = co_await run_in(preparation_, work)) {
    HttpResponse refusal = error_response("/v1/files", *error);
    co_await connection.respond(std::move(refusal));
    co_return;
  }
  co_await reply(connection, "/v1/files", std::move(response));
}

asio::awaitable<void> Api::list_batches(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).batches(page_of(request));
  };
  co_await prepared(connection, "/v1/batches", make);
}

asio::awaitable<void> Api::create_batch(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).add_batch(request.body());
  };
  co_await prepared(connection, "/v1/batches", make);
}

asio::awaitable<void> Api::retrieve_batch(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).batch(id_of_path(request));
  };
  co_await prepared(connection, "/v1/batches", make);
}

asio::awaitable<void> Api::cancel_batch(Connection& connection, HttpRequest& request) {
  const std::function<OrderedJson()> make = [&] {
    return store_of(jobs).cancel(id_of_path(request));
  };
  co_await prepared(connection, "/v1/batches", make);
}

}  // namespace klotski
