#include "agent/preload/round_gate.hpp"

#include "common/clocks.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <vector>

namespace acc::agent {

namespace {

std::string_view value_of(const char* const* environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry{*environment};
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return entry.substr(name.size() + 1);
  }
  return {};
}

}  // namespace

bool RoundGate::open_pipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return true;
}

bool RoundGate::make(std::span<const char* const* const> environments) {
  is_opened_ = false;
  close();
  first_worker_ = environments.size();
  std::uint16_t port = 0;
  for (std::size_t i = 0; i < environments.size(); ++i) {
    if (value_of(environments[i], "RANK") != "0") continue;
    first_worker_ = i;
    port = parse_number<std::uint16_t>(value_of(environments[i], "MASTER_PORT")).value_or(0);
  }
  first_.waiting = first_worker_ < environments.size() ? 1 : 0;
  others_.waiting = environments.size() - first_.waiting;
  head_start_.begin_round(others_.waiting > 0 ? port : std::uint16_t{0});
  return open_pipe(first_) && open_pipe(others_);
}

int RoundGate::end_of(std::size_t worker) const {
  return worker == first_worker_ ? first_.read.get() : others_.read.get();
}

void RoundGate::let_go(Pipe& pipe, std::int64_t lease_ends_ns) {
  const std::vector<std::int64_t> words(pipe.waiting, lease_ends_ns);
  const auto bytes = words.size() * sizeof(std::int64_t);
  // A pipe takes 64 KiB at once: 8,192 workers.
  const bool is_written =
      bytes == 0 || ::write(pipe.write.get(), words.data(), bytes) == static_cast<ssize_t>(bytes);
  if (!is_written) log::error("gate_not_opened", {{"errno", errno}});
  pipe = {};
}

void RoundGate::open(std::int64_t lease_ends_ns) {
  is_opened_ = true;
  let_go(first_, lease_ends_ns);
  if (!head_start_.is_due()) return let_go(others_, lease_ends_ns);
  others_.read.reset();  // the workers have theirs
  follow_head_start(clock_now(), lease_ends_ns);
}

void RoundGate::follow_head_start(Instant since, std::int64_t lease_ends_ns) {
  timer_.expires_after(preload::HeadStart::kStep);
  timer_.async_wait(alive_.bind([this, since, lease_ends_ns](boost::system::error_code cancelled) {
    if (cancelled || !others_.write) return;
    const auto waited = std::chrono::duration_cast<Millis>(clock_now() - since);
    const bool listens = is_listening();
    if (!head_start_.is_over(listens, waited)) return follow_head_start(since, lease_ends_ns);
    log::info("head_start", {{"ms", waited.count()}, {"store_listens", listens}});
    let_go(others_, lease_ends_ns);
  }));
}

void RoundGate::close() {
  if (is_opened_) return;
  timer_.cancel();
  first_ = {};
  others_ = {};
}

bool RoundGate::is_listening() {
  return head_start_.port() != 0 && sockets_.is_listening(head_start_.port());
}

void RoundGate::look_for_store() { head_start_.on_looked(is_listening()); }

}  // namespace acc::agent
