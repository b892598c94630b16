#include "agent/parent_watch.hpp"

#include "agent/job_plan.hpp"
#include "common/poll_now.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace acc::agent {

ParentWatch::ParentWatch(boost::asio::io_context& io, const GuardianLink& guardian, Hooks hooks)
    : io_{io}, guardian_{guardian}, hooks_{std::move(hooks)}, pidfd_{io} {}

void ParentWatch::begin(const std::optional<LifeLine>& life_line) {
  watch_guardian();
  if (!life_line) return;
  life_line_ = std::make_unique<LifeLineWatch>(
      io_, life_line->fd, [this](int signo) { pass_on(signo); }, hooks_.on_ask,
      [this](const std::string& why) { hooks_.on_lost(why); });
}

bool ParentWatch::is_guardian_gone() const {
  return guardian_.pid != 0 && ::getppid() != guardian_.pid;
}

void ParentWatch::watch_guardian() {
  if (guardian_.pid == 0) return;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, guardian_.pid, 0U));
  if (fd < 0) return;  // PDEATHSIG still sends SIGTERM
  pidfd_.assign(fd);
  await_guardian_end();
}

void ParentWatch::await_guardian_end() {
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](boost::system::error_code error) {
                      if (error) return;
                      if (!is_ready(pidfd_.native_handle(), POLLIN)) return await_guardian_end();
                      hooks_.on_lost({});
                    });
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
