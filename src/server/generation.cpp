// Api's answers to requests for text.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <ctime>

#include "base/random_bits.h"
#include "server/api.h"
#include "server/generation.h"
#include "server/run_in.h"

namespace klotski {

namespace {

// Where there was no memory to tell of an update, its reader finds it by itself.
constexpr std::chrono::milliseconds kLookAgain(500);
constexpr auto kWait = asio::as_tuple(asio::use_awaitable);

}  // namespace

asio::awaitable<void> Api::generate(Connection& connection, HttpRequest& request,
                                    Endpoint endpoint) {
  const auto arrival = GenerationJob::Clock::now();
  const uint64_t number = ++requests_;
  std::optional<Generation> generation;
  const std::function<void()> work = [&] {
    generation.emplace(prepare_generation(served_, request.body(), endpoint, random_bits()));
  };
  std::optional<ApiError> error = co_await run_in(preparation_, work);
  if (!error) {
    generation->writer.emplace(
        ResponseHead{
            .endpoint = endpoint,
            .id = fmt::format("{}-{:x}-{:x}", endpoint == Endpoint::chat ? "chatcmpl" : "cmpl",
                              served_.created, number),
            .model = served_.name,
            .created = static_cast<int64_t>(std::time(nullptr)),
            .lossy = served_.lossy},
        served_.tokenizer, generation->call.logprobs.has_value());
    generation->stream =
        std::make_shared<GenerationStream>(generation->prepared.size(), options_.most_unsent_bytes);
    GenerationJob job{.choices = std::move(generation->prepared),
                      .stream = generation->stream,
                      .arrival = arrival};
    if (options_.request_time) job.deadline = arrival + *options_.request_time;
    error = refusal_of([&] { engine_.submit(std::move(job)); });
  }
  if (error) {
    HttpResponse refusal = error_response(
        endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions", *error);
    co_await connection.respond(std::move(refusal));
    co_return;
  }
  const AbandonAtEnd abandon{generation->stream};
  if (generation->call.stream) {
    co_await stream(connection, *generation);
  } else {
    co_await collect(connection, *generation);
  }
}

// Updates that came; none where the stream has ended or the client is gone.
asio::awaitable<std::vector<ChoiceUpdate>> Api::next_updates(Connection& connection,
                                                             Generation& generation) {
  const auto executor = co_await asio::this_coro::executor;
  std::vector<ChoiceUpdate> updates = generation.stream->take();
  while (updates.empty() && !generation.stream->ended() && !connection.gone()) {
    const auto timer = std::make_shared<asio::steady_timer>(executor, kLookAgain);
    generation.stream->on_ready = [timer] { timer->cancel(); };
    connection.on_gone = [timer] { timer->cancel(); };
    co_await timer->async_wait(kWait);
    generation.stream->on_ready = nullptr;
    connection.on_gone = nullptr;
    updates = generation.stream->take();
  }
  co_return updates;
}

asio::awaitable<void> Api::collect(Connection& connection, Generation& generation) {
  std::vector<ResponseChoice> whole = echoed_choices(generation);
  std::vector<ChoiceUpdate> updates = co_await next_updates(connection, generation);
  while (!updates.empty()) {
    for (ChoiceUpdate& update : updates) {
      ResponseChoice more = generation.next(std::move(update));
      ResponseChoice& choice = whole[more.index];
      append(choice, std::move(more));
    }
    updates = co_await next_updates(connection, generation);
  }
  if (connection.gone()) co_return;
  HttpResponse response;
  if (const std::optional<ApiError> error = generation.stream->error()) {
    response = error_response(generation.path, *error);
  } else {
    metrics_.count_response(generation.path, response.status);
    response.body = generation.writer->body(whole, generation.usage);
  }
  co_await connection.respond(std::move(response));
}

asio::awaitable<void> Api::stream(Connection& connection, Generation& generation) {
  std::vector<ChoiceUpdate> updates = co_await next_updates(connection, generation);
  std::optional<ApiError> error = generation.stream->error();
  if (updates.empty() && error) {  // before the first event: a status can still say so
    HttpResponse refusal = error_response(generation.path, *error);
    co_await connection.respond(std::move(refusal));
    co_return;
  }
  metrics_.count_response(generation.path, 200);
  co_await connection.begin_events();
  std::string events;
  for (size_t i = 0; i < generation.echoes.size(); ++i) {
    events += generation.writer->begin_event(i);
    const std::string& echo = generation.echoes[i];
    if (!echo.empty()) events += generation.writer->event({.index = i, .text = echo});
  }
  while (!updates.empty() && !connection.gone()) {
    const ChoiceUpdate::Clock::time_point made = updates.front().made;
    for (ChoiceUpdate& update : updates) {
      const ResponseChoice choice = generation.next(std::move(update));
      if (says_something(choice)) events += generation.writer->event(choice);
    }
    metrics_.delivered_after(
        std::chrono::duration<double>(ChoiceUpdate::Clock::now() - made).count());
    if (!events.empty()) co_await connection.send_events(events);
    events.clear();
    updates = co_await next_updates(connection, generation);
  }
  error = generation.stream->error();
  if (error) {
    events = error_event(*error);
  } else {
    if (generation.call.include_usage) events = generation.writer->usage_event(generation.usage);
    events += kDoneEvent;
  }
  co_await connection.send_events(events);
  co_await connection.end_events();
}

}  // namespace klotski
