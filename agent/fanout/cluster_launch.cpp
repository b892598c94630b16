#include "agent/fanout/cluster_launch.hpp"

#include "agent/descriptor_limit.hpp"
#include "agent/fanout/cluster_run.hpp"
#include "agent/fanout/launch_record.hpp"
#include "agent/fanout/slot_wait.hpp"
#include "agent/guardian_watch.hpp"
#include "common/clocks.hpp"
#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"
#include "common/random.hpp"
#include "common/text.hpp"
#include "rendezvous/secret.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

namespace acc::agent {

namespace {

/// For transports that stop the job on their hosts, when we were killed.
constexpr Millis kStopPatience{20'000};
constexpr std::uint64_t kDescriptorsOfHost = 4, kDescriptorsOfOurs = 40;

/// @return the stop signal that ended the pause, SIGTERM also for the guardian's death; 0: it is
/// over
int pause_between_tries(Millis length, const GuardianLink& guardian) {
  const UniqueFd signals = open_hosts_signals();
  const Instant end = clock_now() + length;
  for (;;) {
    if (is_guardian_gone(guardian)) return SIGTERM;
    const auto left = std::chrono::ceil<Millis>(end - clock_now()).count();
    if (left <= 0) return 0;
    pollfd fd{signals.get(), POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(left));
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info) {
      const auto signo = static_cast<int>(info.ssi_signo);
      if (ends_any_job(signo)) return signo;
    }
  }
}

/// Once, or until no host of a launch that waits is full.
int run_tries(const ClusterLaunch& launch, const GuardianLink& guardian) {
  SlotWait wait;
  for (;;) {
    std::optional<rendezvous::SecretBytes> secret;
    if (launch.sends_secret) {
      auto made = rendezvous::random_secret();
      if (!made) {
        std::fprintf(stderr, "%s: %s\n", launch.program.c_str(), made.error().what.c_str());
        return to_int(ExitCode::resources);
      }
      secret = std::move(*made);
    }
    const auto end = run_cluster_once(launch, guardian, std::move(secret), wait);
    if (!end.is_to_wait) return end.exit_code;
    if (end.words) std::fprintf(stderr, "acc-launch: %s\n", end.words->c_str());
    int signo = end.late_signal;
    if (signo == 0) signo = pause_between_tries(wait.pause(random_fraction()), guardian);
    if (signo == 0) continue;
    std::fprintf(stderr, "acc-launch: stopped by %s before anything was started\n",
                 signal_name(signo).c_str());
    if (launch.is_recorded) remove_record(launch.id);
    return 128 + signo;
  }
}

}  // namespace

int run_on_hosts(const ClusterLaunch& launch, const GuardianLink& guardian) {
  if (!outlive(guardian)) return to_int(ExitCode::agent_lost);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  DescriptorLimit limit;
  const auto needed =
      count_open_descriptors() + kDescriptorsOfOurs + kDescriptorsOfHost * launch.hosts.size();
  if (needed > limit.now()) {
    std::fprintf(stderr,
                 "%s: %zu hosts need %zu descriptors, and the limit is %zu: raise it with "
                 "ulimit -n, or name fewer hosts (exit code %d)\n",
                 launch.program.c_str(), launch.hosts.size(), static_cast<std::size_t>(needed),
                 static_cast<std::size_t>(limit.now()), to_int(ExitCode::resources));
    return to_int(ExitCode::resources);
  }
  if (launch.uses_daemons) note_orphan_patience(guardian, kStopPatience);
  note_hosts(guardian);
  try {
    return run_tries(launch, guardian);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: the job's hosts can't be watched any longer: %s\n",
                 launch.program.c_str(), e.what());
    return to_int(ExitCode::agent_lost);
  }
}

}  // namespace acc::agent
