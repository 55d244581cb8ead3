#include "server/run_in.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace klotski {

// Work on its way to another context. Not in the unnamed namespace: a coroutine keeps it.
struct HandedWork {
  HandedWork(std::function<void()> to_do, asio::steady_timer timer)
      : work(std::move(to_do)), bell(std::move(timer)) {}

  std::function<void()> work;
  asio::steady_timer bell;  // rings where the work is done
  std::optional<ApiError> refusal{};
  std::atomic<bool> done{false};
};

namespace {

// The caller looks itself whether the work is done where there was no memory to wake it.
constexpr std::chrono::milliseconds kLookEvery(20);

void do_work(const std::shared_ptr<HandedWork>& work) {
  work->refusal = refusal_of(work->work);
  work->done = true;
  try {
    asio::post(work->bell.get_executor(), [work] { work->bell.cancel(); });
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace

std::optional<ApiError> refusal_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    const bool by_request = error.kind() != ErrorKind::internal;
    return ApiError(by_request ? Status::bad_request : Status::unavailable, error.what());
  } catch (const std::bad_alloc&) {
    return ApiError(Status::unavailable, "there is no memory for this request", "",
                    "out_of_memory");
  } catch (const std::exception& error) {
    return ApiError(Status::unavailable, error.what());
  }
}

asio::awaitable<std::optional<ApiError>> run_in(asio::io_context& context,
                                                std::function<void()> work) {
  asio::steady_timer bell(co_await asio::this_coro::executor);
  const auto shared = std::make_shared<HandedWork>(std::move(work), std::move(bell));
  asio::post(context, [shared] { do_work(shared); });
  // The work may refer to what the caller has: nothing leaves before it is done.
  while (!shared->done) {
    try {
      shared->bell.expires_after(kLookEvery);
      co_await shared->bell.async_wait(asio::as_tuple(asio::use_awaitable));
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  co_return shared->refusal;
}

}  // namespace klotski
