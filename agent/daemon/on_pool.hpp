#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <functional>

namespace acc::agent::daemon {

/// Runs what blocks on the pool, and continues on the caller's executor. With one thread the pool
/// keeps the order of the calls. For the types that on_pool.cpp names: the same coroutine template
/// in two object files doesn't link (GCC 12).
template <class T>
boost::asio::awaitable<T> on_pool(boost::asio::thread_pool& pool, std::function<T()> work);

}  // namespace acc::agent::daemon
