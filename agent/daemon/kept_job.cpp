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

JobRecord record_of(const Job& job) {
  const auto& stored = job.stored;
  JobRecord record;
  record.id = stored.id;
  record.uid = stored.uid;
  record.user = stored.user;
  record.submission = stored.submission;
  record.state = state_of(stored.life);
  record.exit_code = stored.life.exit_code;
  record.reason = stored.life.reason;
  const auto left =
      std::chrono::duration_cast<Delay>(job.delay.expiry() - std::chrono::steady_clock::now());
  if (stored.life.phase == Phase::delayed && !job.is_busy && left > Delay{0})  // the timer runs
    record.reason =
        with_delay(record.reason, left, stored.life.starts == 0 ? "tried again" : "restarts");
  // An end shows when it is recorded and its slots are free: who waits for it may submit the next.
  if (stored.life.phase == Phase::ended && job.is_busy) {
    record.state = stored.life.stop_asked ? JobState::stopping : JobState::running;
    record.exit_code.reset();
    record.reason.clear();
  }
  record.submitted_ms = stored.submitted_ms;
  record.started_ms = stored.started_ms;
  record.ended_ms = job.is_busy ? 0 : stored.ended_ms;
  record.pid = stored.guardian.pid;
  record.starts = stored.life.starts;
  record.gpus = stored.gpus;
  record.program = stored.program;
  return record;
}

std::int64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace acc::agent::daemon
