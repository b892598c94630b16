#include "agent/daemon/kept_job.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace acc::agent::daemon {

JobPtr find_job(const JobTable& jobs, const JobId& id) {
  const auto found = jobs.find(id);
  return found != jobs.end() && !found->second->is_leaving ? found->second : nullptr;
}

boost::asio::awaitable<void> settled(JobPtr job) {
  while (job->is_busy) {
    boost::system::error_code woken;
    co_await job->idle.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
}

std::int64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace acc::agent::daemon
