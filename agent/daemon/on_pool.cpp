#include "agent/daemon/on_pool.hpp"

#include "agent/daemon/job_files.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/login_user.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

namespace asio = boost::asio;
using asio::awaitable;

namespace {

template <class T>
awaitable<T> call(std::function<T()> work) {
  co_return work();
}

}  // namespace

template <class T>
awaitable<T> on_pool(asio::thread_pool& pool, std::function<T()> work) {
  co_return co_await asio::co_spawn(pool, call<T>(std::move(work)), asio::use_awaitable);
}

template awaitable<Result<void>> on_pool(asio::thread_pool&, std::function<Result<void>()>);
template awaitable<Result<std::string>> on_pool(asio::thread_pool&,
                                                std::function<Result<std::string>()>);
template awaitable<Result<LoginUser>> on_pool(asio::thread_pool&,
                                              std::function<Result<LoginUser>()>);
template awaitable<Result<JobFiles>> on_pool(asio::thread_pool&, std::function<Result<JobFiles>()>);
template awaitable<Result<StateFolder::Contents>> on_pool(
    asio::thread_pool&, std::function<Result<StateFolder::Contents>()>);
template awaitable<Result<std::vector<StateFolder::Trash>>> on_pool(
    asio::thread_pool&, std::function<Result<std::vector<StateFolder::Trash>>()>);
template awaitable<std::uint64_t> on_pool(asio::thread_pool&, std::function<std::uint64_t()>);

}  // namespace acc::agent::daemon
