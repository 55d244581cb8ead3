#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <new>
#include <optional>

#include "server/api_error.h"

namespace klotski {

namespace asio = boost::asio;

// The refusal that an exception of `work` stands for; nothing where it throws none.
std::optional<ApiError> refusal_of(const std::function<void()>& work);

// Does the work in another context, and goes on in the caller's own. The caller must wait for it.
asio::awaitable<std::optional<ApiError>> run_in(asio::io_context& context,
                                                std::function<void()> work);

}  // namespace klotski
