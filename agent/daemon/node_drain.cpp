#include "agent/daemon/node_drain.hpp"

#include "agent/daemon/admission.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/on_pool.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <boost/asio/co_spawn.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <exception>
#include <functional>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;

std::string unfit_reason(const std::string& report) {
  const auto json = parse_bounded(report, kDeepestForeign, kMostForeign);
  std::string why = "unfit";
  for (const auto* key : {"start_failure", "reason"})
    if (json.is_object() && json.contains(key) && json[key].is_string()) why = json[key];
  return why;
}

void NodeDrain::job_ended(const JobId& id, const Result<std::string>& report) {
  const auto job = keeper_.find(id);
  const bool is_unfit = job && job->stored.life.exit_code == to_int(ExitCode::unfit);
  if (!is_unfit || keeper_.is_drained()) return;
  if (!is_operator({job->stored.uid, job->stored.gid}))
    return log::warn("node_unfit_for_job", {{"job", id}, {"user", job->stored.user}});
  auto text = printable("job " + id + ": " + unfit_reason(report ? *report : std::string{}), 1000);
  boost::asio::co_spawn(
      io_, drain({::geteuid(), ::getegid()}, std::move(text)),
      [](const std::exception_ptr& failed, const Result<std::string>& done) {
        if (failed || done.has_error())
          log::warn("drain_failed", {{"why", failed ? "a bug" : done.error().what}});
      });
}

awaitable<Result<void>> NodeDrain::record(std::string reason) {
  std::function<Result<void>()> write = [this, reason = std::move(reason)] {
    return keeper_.folder().write_note(kDrainedNote, reason);
  };
  co_return co_await on_pool(keeper_.files(), std::move(write));
}

static Error not_an_operator() {
  return {Errc::not_permitted, "only root and the daemon's user may drain this node"};
}

// A full disk is a reason to drain a node, and none to go on with jobs.
awaitable<Result<std::string>> NodeDrain::drain(Principal who, std::string reason) {
  if (!is_operator(who)) co_return not_an_operator();
  const auto written = co_await record(reason);
  keeper_.set_drained(reason);
  keeper_.events().report("drained", nullptr, reason);
  if (written) co_return std::string{};
  log::warn("drain_not_recorded", {{"why", written.error().what}});
  co_return "it takes jobs again when its acc-agent is restarted: " + written.error().what +
      ": drain it once more when its disk has room";
}

awaitable<Result<void>> NodeDrain::undrain(Principal who) {
  if (!is_operator(who)) co_return not_an_operator();
  const auto written = co_await record({});
  if (written.has_error()) co_return written;
  keeper_.set_drained({});
  keeper_.events().report("undrained", nullptr, "takes jobs again");
  co_return co_await loader_.load();  // files that were put there meanwhile
}

}  // namespace acc::agent::daemon
