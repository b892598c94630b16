#include "agent/parent_watch.hpp"

#include "agent/job_plan.hpp"

#include <csignal>
#include <utility>

namespace acc::agent {

ParentWatch::ParentWatch(boost::asio::io_context& io, const GuardianLink& guardian, Hooks hooks)
    : io_{io}, guardian_{guardian}, hooks_{std::move(hooks)}, guardian_watch_{io, guardian} {}

void ParentWatch::begin(const std::optional<LifeLine>& life_line) {
  guardian_watch_.begin([this] { hooks_.on_lost({}); });
  if (!life_line) return;
  life_line_ = std::make_unique<LifeLineWatch>(
      io_, life_line->fd, [this](int signo) { pass_on(signo); }, hooks_.on_ask,
      [this](const std::string& why) { hooks_.on_lost(why); });
}

// A signal takes the way of one from this host, over the guardian, which counts those to hurry.
void ParentWatch::pass_on(int signo) {
  if (guardian_.pid != 0) {
    ::kill(guardian_.pid, signo);
  } else {
    hooks_.on_signal(signo);
  }
}

}  // namespace acc::agent
