#include "server/run_in.h"

namespace klotski {

namespace {

asio::awaitable<std::optional<ApiError>> do_work(std::function<void()> work) {
  co_return refusal_of(work);
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
  co_return co_await asio::co_spawn(context, do_work(std::move(work)), asio::use_awaitable);
}

}  // namespace klotski
