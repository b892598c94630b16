#include "agent/guardian_watch.hpp"

#include "common/poll_now.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace acc::agent {

bool is_guardian_gone(const GuardianLink& guardian) {
  return guardian.pid != 0 && ::getppid() != guardian.pid;
}

void GuardianWatch::begin(std::function<void()> on_gone) {
  if (guardian_.pid == 0) return;
  on_gone_ = std::move(on_gone);
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, guardian_.pid, 0U));
  if (fd < 0) return;  // PDEATHSIG still sends SIGTERM
  pidfd_.assign(fd);
  await_end();
}

void GuardianWatch::await_end() {
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](boost::system::error_code error) {
                      if (error) return;
                      if (!is_ready(pidfd_.native_handle(), POLLIN)) return await_end();
                      on_gone_();
                    });
}

}  // namespace acc::agent
