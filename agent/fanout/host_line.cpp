#include "agent/fanout/host_line.hpp"

#include "common/clocks.hpp"
#include "common/poll_now.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace acc::agent {

namespace {

std::size_t pipe_capacity(int fd) {
  const int bytes = ::fcntl(fd, F_GETPIPE_SZ);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{64} << 10U;
}

}  // namespace

int HostLine::start(Spawner& spawner, Settings settings, std::function<void(ExitStatus)> on_exit) {
  Transport::Pipes pipes;
  const int failed = transport_.start(spawner, settings.command, settings.heeds_signals, pipes,
                                      [this, told = std::move(on_exit)](ExitStatus status) {
                                        take_last_output();
                                        told(status);
                                      });
  if (failed != 0) return failed;
  const auto targets = [&](bool is_err) {
    WorkerStream::Targets to;
    to.console = &destinations_.console(is_err);
    to.show = Show::prefixed;  // whole lines only
    to.prefix = settings.prefix;
    return to;
  };
  out_ = std::make_unique<HostStream>(targets(false), settings.token, std::move(settings.on_mark));
  err_ = std::make_unique<HostStream>(targets(true), settings.token, std::move(settings.on_event));
  out_fd_ = pipes.out.get();
  err_fd_ = pipes.err.get();
  destinations_.console(false).reserve(pipe_capacity(out_fd_));
  destinations_.console(true).reserve(pipe_capacity(err_fd_));
  out_reader_ = pump_.add(std::move(pipes.out), *out_);
  err_reader_ = pump_.add(std::move(pipes.err), *err_);
  return 0;
}

// What comes later is not of a connection that lives: acc-launch there is about to notice.
void HostLine::take_last_output() {
  for (const auto& reader : {out_reader_, err_reader_}) pump_.drain(*reader);
  for (const auto& reader : {out_reader_, err_reader_}) pump_.close(*reader);
  destinations_.flush();
}

void HostLine::answered() {
  if (contact_) contact_->answered();
}

std::optional<ContactWatch::Finding> HostLine::look_for_contact() {
  if (!contact_) return std::nullopt;
  const auto heard = std::max(out_->last_heard(), err_->last_heard());
  const bool has_unread = is_ready(out_fd_, POLLIN) || is_ready(err_fd_, POLLIN);
  return contact_->look(clock_now(), heard, has_unread);
}

}  // namespace acc::agent
