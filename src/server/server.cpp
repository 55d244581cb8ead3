#include "server/server.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "server/api.h"
#include "server/batch_runner.h"
#include "server/engine_thread.h"
#include "server/http_server.h"
#include "server/metrics.h"

namespace klotski {

namespace {

constexpr std::chrono::milliseconds kLastWords(1'000);  // for clients to be told of the end

EngineThread::Options engine_options(const ServerOptions& options, ServerEvents& events,
                                     asio::io_context& io, asio::io_context& preparation) {
  return {.most_waiting = options.most_waiting,
          .open_session = std::move(events.open_session),
          .loaded = std::move(events.loaded),
          .stopped = [&preparation] { preparation.stop(); },
          .notify =
              [&io](EngineThread::Streams streams) {
                asio::post(io, [streams = std::move(streams)] {
                  for (const auto& stream : streams) {
                    if (stream->on_ready) stream->on_ready();
                  }
                });
              },
          .closing = std::move(events.closing)};
}

// Ends the server when it is asked to or the engine has ended: first no new connection is accepted,
// then, when all requests have ended or their time is over, the thread that prepares bodies stops.
class Shutdown {
 public:
  Shutdown(std::chrono::milliseconds drain, std::function<bool()> stop_asked, HttpServer& http,
           Api& api)
      : drain_(drain), stop_asked_(std::move(stop_asked)), http_(http), api_(api) {}

  // Called several times a second on the I/O thread. True when it is time to end.
  bool time_to_end() {
    const auto now = Connection::Clock::now();
    if (!since_) {
      if (!engine_ended_ && !(stop_asked_ && stop_asked_())) return false;
      since_ = now;
      api_.set_stopping();
      http_.stop_accepting();
    }
    none_connected_ = http_.connections() == 0;
    return none_connected_ || now > *since_ + drain_;
  }

  // For the caller's thread.
  void end() { engine_ended_ = true; }
  bool none_connected() const { return none_connected_; }
  void await_none_connected(std::chrono::milliseconds time) const {
    const auto end = Connection::Clock::now() + time;
    while (!none_connected_ && Connection::Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  const std::chrono::milliseconds drain_;
  const std::function<bool()> stop_asked_;
  HttpServer& http_;
  Api& api_;
  std::optional<Connection::Clock::time_point> since_;
  std::atomic<bool> engine_ended_ = false;
  std::atomic<bool> none_connected_ = false;
};

// A thread that serves clients until it is destroyed.
class IoThread {
 public:
  IoThread(asio::io_context& io, HttpServer& http, std::function<void()> tick)
      : io_(io), thread_([&http, tick = std::move(tick)] { http.run(tick); }) {}
  ~IoThread() {
    io_.stop();
    thread_.join();
  }
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

 private:
  asio::io_context& io_;
  std::thread thread_;
};

// Opens the store of files and batches, which a server may have to do without.
void open_jobs(const ServerOptions& options, std::optional<JobStore>& jobs) {
  try {
    jobs.emplace(options.jobs_folder);
  } catch (const Error& error) {
    if (options.needs_jobs || error.kind() != ErrorKind::usage) throw;
  }
}

}  // namespace

bool serve(const ServedModel& served, const ServerOptions& options, ServerEvents events) {
  // Later ones refer to earlier ones, and go before them.
  asio::io_context io(1);
  asio::io_context preparation(1);
  const auto work = asio::make_work_guard(preparation);
  Metrics metrics;
  EngineThread engine(served, metrics, engine_options(options, events, io, preparation));
  Api api(served, engine, metrics, preparation, options.api);
  std::optional<JobStore> jobs;
  std::optional<BatchRunner> batches;
  if (!options.jobs_folder.empty()) open_jobs(options, jobs);
  if (jobs) {
    batches.emplace(*jobs, served, engine, preparation, options.batch_rows);
    api.jobs = &*jobs;
  }
  HttpServer http(io, options.limits, api);
  api.connections = [&http] { return static_cast<int64_t>(http.connections()); };
  const std::string url = http.listen(options.host, options.port);

  Shutdown shutdown(options.drain, std::move(events.stop_asked), http, api);
  const IoThread io_thread(io, http, [&] {
    if (shutdown.time_to_end()) preparation.stop();
  });
  if (events.listening) events.listening(url);
  engine.start();
  if (batches) batches->start();
  preparation.run();

  const bool drained = shutdown.none_connected();
  if (batches) batches->stop();  // before the engine fails their rows
  engine.stop();                 // requests that are left are told
  shutdown.end();
  shutdown.await_none_connected(kLastWords);
  if (engine.failure()) std::rethrow_exception(engine.failure());
  return drained;
}

}  // namespace klotski
