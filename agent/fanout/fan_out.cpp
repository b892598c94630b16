#include "agent/fanout/fan_out.hpp"

#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::agent {

namespace {

bool lives(const FanOutHost& host) {
  return host.phase != HostPhase::waiting && host.phase != HostPhase::gone;
}

bool any_in(const FanOutState& state, HostPhase phase) {
  return std::ranges::any_of(state.hosts,
                             [&](const FanOutHost& host) { return host.phase == phase; });
}

/// The third Ctrl-C kills the workers, as on one host.
constexpr std::uint32_t kHurriedStops = 3;

template <class Do>
void for_living(FanOutState& state, const Do& act) {
  for (HostIndex i = 0; i < state.hosts.size(); ++i) {
    if (lives(state.hosts[i])) act(i, state.hosts[i]);
  }
}

void start_some(FanOutState& state, FanOutActions& out) {
  auto busy = static_cast<std::size_t>(std::ranges::count_if(
      state.hosts, [](const FanOutHost& host) { return host.phase == HostPhase::starting; }));
  for (HostIndex i = 0; i < state.hosts.size() && busy < state.policy.at_once; ++i) {
    if (state.hosts[i].phase != HostPhase::waiting) continue;
    state.hosts[i].phase = HostPhase::starting;
    out.emplace_back(StartTransport{i});
    ++busy;
  }
}

bool lacks_output(const HostTrouble& trouble) {
  const auto* exited = std::get_if<Exited>(&trouble.status);
  return trouble.what == HostTrouble::What::exited && exited != nullptr &&
         exited->code == to_int(ExitCode::output);
}

/// A place for output that can't be written is as on one host; all else that hosts lack is a
/// failure.
int code_of_troubles(const FanOutState& state) {
  bool is_output = false;
  for (const auto& host : state.hosts) {
    if (!host.trouble) continue;
    if (!lacks_output(*host.trouble)) return to_int(ExitCode::failure);
    is_output = true;
  }
  return to_int(is_output ? ExitCode::output : ExitCode::failure);
}

/// What the agents report. Without any word of an end the nodes are missing.
int exit_code_of(const FanOutState& state) {
  if (state.left) return *state.left;
  if (state.has_failed) return code_of_troubles(state);
  if (state.is_detached) return 0;
  if (state.policy.is_reader && state.verdict.code()) return 0;
  if (const auto code = state.verdict.code())
    return state.was_sent_again && *code == 128 + SIGTERM ? 128 + state.stop_signal : *code;
  const bool any_ended = std::ranges::any_of(
      state.hosts, [](const FanOutHost& host) { return host.exit_code.has_value(); });
  if (any_ended && !state.is_rest_told) return 0;
  return state.stop_signal != 0 ? 128 + state.stop_signal : to_int(ExitCode::nodes_missing);
}

void finish_if_empty(FanOutState& state, FanOutActions& out) {
  if (state.phase == FanOutPhase::finished || std::ranges::any_of(state.hosts, lives)) return;
  if (state.phase == FanOutPhase::starting && any_in(state, HostPhase::waiting)) return;
  state.phase = FanOutPhase::finished;
  for (const auto timer :
       {FanOutTimer::start, FanOutTimer::verdict, FanOutTimer::leave, FanOutTimer::end,
        FanOutTimer::stop, FanOutTimer::rest, FanOutTimer::hurry, FanOutTimer::apart})
    out.emplace_back(DisarmFanOutTimer{timer});
  out.emplace_back(FinishFanOut{exit_code_of(state)});
}

void leave(FanOutState& state, FanOutActions& out) {
  state.phase = FanOutPhase::leaving;
  out.emplace_back(DisarmFanOutTimer{FanOutTimer::start});
  out.emplace_back(DisarmFanOutTimer{FanOutTimer::verdict});
  for_living(state, [&](HostIndex i, FanOutHost& host) {
    if (!std::exchange(host.is_closed, true)) out.emplace_back(CloseLifeLine{i});
  });
  out.emplace_back(ArmFanOutTimer{FanOutTimer::leave, state.policy.leave_patience});
  finish_if_empty(state, out);
}

// All that can be said of the start is known, or the time for it is over.
void give_verdict(FanOutState& state, FanOutActions& out) {
  for (auto& host : state.hosts) {
    if (host.phase == HostPhase::starting && !host.trouble)
      host.trouble = HostTrouble{HostTrouble::What::silent, {}, 0, {}};
  }
  out.emplace_back(TellTroubles{});
  leave(state, out);
}

void go(FanOutState& state, FanOutActions& out) {
  state.phase = FanOutPhase::running;
  out.emplace_back(DisarmFanOutTimer{FanOutTimer::start});
  for_living(state, [&](HostIndex i, FanOutHost& host) {
    host.phase = HostPhase::running;
    out.emplace_back(SendGo{i});
  });
}

// An elastic job has begun, too, where a host ended alone.
bool has_begun(const FanOutHost& host) {
  if (host.has_begun || !host.exit_code) return host.has_begun;
  return *host.exit_code == 0 || JobVerdict::is_of_one_node(*host.exit_code);
}

void detach_if_begun(FanOutState& state, FanOutActions& out) {
  const bool may = state.policy.detaches && !state.is_detached && !state.missed &&
                   state.phase == FanOutPhase::running && state.stop_signal == 0;
  if (!may || std::ranges::none_of(state.hosts, &FanOutHost::has_begun)) return;
  if (!std::ranges::all_of(state.hosts, has_begun)) return;
  state.is_detached = true;
  for_living(state, [&](HostIndex i, FanOutHost& host) {
    host.is_closed = true;  // its end is no loss
    out.emplace_back(SendLeave{i});
  });
}

/// Refused by the acc-launch there, before it could tell the other nodes.
bool is_refusal(int code) {
  return code == to_int(ExitCode::usage) || code == to_int(ExitCode::output);
}

/// Its part may go on, and the other nodes may be in contact with it.
bool may_live(const FanOutState& state, HostIndex host) {
  return state.policy.uses_daemons && !state.hosts[host].exit_code;
}

// As long as workers run anywhere, or between two rounds, the job may go on without us.
void watch_rest(FanOutState& state, FanOutActions& out) {
  if (state.phase != FanOutPhase::running || state.stop_signal != 0 || !state.missed) return;
  if (state.is_rest_told || state.policy.leaves_at != 0) return;  // acc-ctl only follows
  const bool is_lost = may_live(state, *state.missed);
  const bool goes_on = std::ranges::any_of(state.hosts, [&](const FanOutHost& host) {
    const bool works = host.is_at_work || (is_lost && host.is_ending);
    return host.phase == HostPhase::running && !host.exit_code && works;
  });
  if (std::exchange(state.is_rest_armed, !goes_on) == !goes_on) return;
  if (goes_on) {
    out.emplace_back(DisarmFanOutTimer{FanOutTimer::rest});
    return;
  }
  out.emplace_back(ArmFanOutTimer{
      FanOutTimer::rest, is_lost ? state.policy.lost_patience : state.policy.rest_patience});
}

// Nothing starts a part of the job again. The others may have to wait for it until --join_timeout,
// and learn from us that this is in vain.
void heed_missing(FanOutState& state, HostIndex index, FanOutActions& out) {
  const auto left = static_cast<std::size_t>(
      std::ranges::count_if(state.hosts, [](const FanOutHost& host) {
        return host.phase == HostPhase::running && !host.exit_code;
      }));
  const bool may_be_missed = state.policy.min_hosts != 0 && state.phase == FanOutPhase::running &&
                             state.stop_signal == 0 && !state.is_detached;
  const auto code = state.hosts[index].exit_code;
  const bool is_refused = code && is_refusal(*code);
  const bool is_known = state.missed && (!may_live(state, *state.missed) || !code);
  if (!may_be_missed || is_known || left == 0) return;
  if (!is_refused && left >= state.policy.min_hosts) return;
  state.missed = index;
  state.is_rest_armed = false;
  watch_rest(state, out);
}

bool is_awaited(const FanOutHost& host) {
  return host.phase == HostPhase::running && !host.exit_code;
}

/// What a host without contact does changes nothing any more: the job has ended for all its nodes,
/// was told to, or needs one that has, and no host is left that could say more.
bool is_end_known(const FanOutState& state) {
  const auto tells_of_job = [](const FanOutHost& host) {
    return host.exit_code && !JobVerdict::is_of_one_node(*host.exit_code) &&
           !is_refusal(*host.exit_code);
  };
  if (state.is_rest_told || std::ranges::any_of(state.hosts, tells_of_job)) return true;
  const bool is_missed = state.missed && !may_live(state, *state.missed);
  return is_missed && std::ranges::none_of(state.hosts, [](const FanOutHost& host) {
           return is_awaited(host) && !host.silence;
         });
}

/// From its end on the job waits only so long for hosts that can't be reached.
void watch_end(FanOutState& state, FanOutActions& out) {
  if (state.phase != FanOutPhase::running || state.stop_signal != 0 || !is_end_known(state)) return;
  for (auto& host : state.hosts) {
    if (host.silence) host.silence->until.reset();  // the transport would wait longer
  }
  if (state.is_apart_over || std::exchange(state.is_apart_armed, true)) return;
  out.emplace_back(ArmFanOutTimer{FanOutTimer::apart, state.policy.apart_patience});
}

void end_the_rest(FanOutState& state, FanOutActions& out) {
  if (state.phase != FanOutPhase::running || state.stop_signal != 0 || !state.is_rest_armed) return;
  state.is_rest_told = true;
  out.emplace_back(TellMissed{*state.missed});
  for_living(state, [&](HostIndex i, const FanOutHost& host) {
    if (!host.exit_code) out.emplace_back(SendSignal{i, SIGTERM});
  });
  if (!std::exchange(state.is_end_armed, true))
    out.emplace_back(ArmFanOutTimer{FanOutTimer::end, state.policy.end_patience});
  watch_end(state, out);
}

// A host has answered, or can't.
void after_answer(FanOutState& state, FanOutActions& out) {
  if (state.phase != FanOutPhase::starting) return;
  start_some(state, out);
  if (!any_in(state, HostPhase::starting))
    return state.has_failed ? give_verdict(state, out) : go(state, out);
  out.emplace_back(ArmFanOutTimer{FanOutTimer::start, state.policy.start_patience});
}

void fail(FanOutState& state, HostIndex index, HostTrouble trouble, FanOutActions& out) {
  auto& host = state.hosts[index];
  if (!host.trouble) host.trouble = std::move(trouble);
  if (!std::exchange(state.has_failed, true))
    out.emplace_back(ArmFanOutTimer{FanOutTimer::verdict, state.policy.verdict_delay});
}

FanOutActions on(FanOutState& state, const FanOutBegan&) {
  FanOutActions out;
  start_some(state, out);
  out.emplace_back(ArmFanOutTimer{FanOutTimer::start, state.policy.start_patience});
  return out;
}

FanOutActions on(FanOutState& state, const TransportFailed& e) {
  FanOutActions out;
  state.hosts[e.host].phase = HostPhase::gone;
  if (state.phase == FanOutPhase::starting)
    fail(state, e.host, {HostTrouble::What::not_started, {}, e.errnum, {}}, out);
  after_answer(state, out);
  finish_if_empty(state, out);
  return out;
}

FanOutActions on(FanOutState& state, const HostPrepared& e) {
  FanOutActions out;
  auto& host = state.hosts[e.host];
  if (host.phase != HostPhase::starting) return out;
  host.phase = HostPhase::prepared;
  if (state.phase != FanOutPhase::starting) return out;
  if (e.version != state.policy.version)
    fail(state, e.host, {HostTrouble::What::other_version, {}, 0, e.version}, out);
  // Two names of one machine would be two nodes.
  const auto same = std::ranges::find(state.hosts, e.daemon, &FanOutHost::daemon);
  if (!e.daemon.empty() && same != state.hosts.end())
    fail(state, e.host,
         {HostTrouble::What::same_daemon, {}, 0, {},
          static_cast<std::size_t>(same - state.hosts.begin())},
         out);
  host.daemon = e.daemon;
  after_answer(state, out);
  return out;
}

FanOutActions on(FanOutState& state, const HostReportedStart& e) {
  FanOutActions out;
  state.hosts[e.host].job = e.job;
  const bool all_started =
      std::ranges::none_of(state.hosts, [](const FanOutHost& host) { return host.job.empty(); });
  if (state.phase != FanOutPhase::running || !all_started) return out;
  out.emplace_back(RecordLaunch{});
  return out;
}

FanOutActions on(FanOutState& state, const HostWorks& e) {
  FanOutActions out;
  auto& host = state.hosts[e.host];
  if (host.phase != HostPhase::running) return out;
  host.is_at_work = e.is_at_work;
  host.is_ending = e.is_ending;
  host.has_begun = host.has_begun || e.is_at_work;
  host.is_apart = host.is_apart && !e.is_at_work;
  watch_rest(state, out);
  detach_if_begun(state, out);
  return out;
}

// The coordinator tells the others. Those that hadn't found it yet when a signal ended the job
// would look for it until --join_timeout. Before the first workers, that may be all of them, and none
// has anything to bring to its end.
void arm_end(const FanOutState& state, FanOutActions& out) {
  constexpr Millis kBeforeWork{250};
  out.emplace_back(ArmFanOutTimer{FanOutTimer::end, state.policy.end_patience});
  if (state.stop_signal == 0) return;
  const bool has_begun = std::ranges::any_of(state.hosts, &FanOutHost::has_begun);
  out.emplace_back(
      ArmFanOutTimer{FanOutTimer::stop, has_begun ? state.policy.stop_patience : kBeforeWork});
}

// A host that was cut off while the job went on would look for it until --join_timeout.
bool has_succeeded_without_the_rest(const FanOutState& state) {
  return state.verdict.code() == 0 && std::ranges::all_of(state.hosts, [](const FanOutHost& host) {
           return !lives(host) || host.exit_code || host.is_apart;
         });
}

void leave_if_silent(const FanOutState& state, HostIndex i, FanOutHost& host, FanOutActions& out) {
  if (!host.silence || host.exit_code || std::exchange(host.is_closed, true)) return;
  out.emplace_back(TellLeft{i, state.stop_signal == 0 && is_end_known(state)});
  out.emplace_back(KillTransport{i});
}

bool leaves_silent(const FanOutState& state) {
  if (state.phase != FanOutPhase::running) return false;
  return state.stop_signal != 0 ? state.is_end_armed : state.is_apart_over && is_end_known(state);
}

// The job has ended on other hosts: one that can't be reached is not waited for.
void leave_silent(FanOutState& state, FanOutActions& out) {
  if (!leaves_silent(state)) return;
  for_living(state, [&](HostIndex i, FanOutHost& host) { leave_if_silent(state, i, host, out); });
}

// The network here may be down, and the job goes on without us. A host that has ended since the
// last answer of this one was heard. A follower begins to ask a host that never answers at about
// the moment at which the others tell it what had ended before.
void wait_longer_if_alone(const FanOutState& state, const HostSilence& silence,
                          FanOutActions& out) {
  if (!state.policy.uses_daemons || state.stop_signal != 0 || state.is_end_armed) return;
  if (is_end_known(state)) return;
  const bool follows = state.policy.leaves_at != 0;
  constexpr Millis kBeginning{5'000};
  const auto from = silence.since - (follows ? kBeginning : Millis{0});
  const auto is_heard = [&](const FanOutHost& host) {
    return host.exit_code ? host.ended_at >= from : lives(host) && !host.silence;
  };
  if (std::ranges::any_of(state.hosts, is_heard)) return;
  out.emplace_back(TellAlone{});
  for (HostIndex i = 0; i < state.hosts.size(); ++i) {
    const auto& host = state.hosts[i];
    if (lives(host) && !host.exit_code) out.emplace_back(SendWaitLonger{i});
  }
}

// A silent host may be the one that was to tell the others of the stop, or may have told them; one
// that answers again may not have heard it. One that is stopping takes SIGTERM for the repetition of
// a scheduler, and SIGINT for a second request, which leaves its workers 2 s.
void pass_stop_on(FanOutState& state, const HostContact& e, FanOutActions& out) {
  const bool is_one_asked = state.policy.leaves_at == 0 && state.stop_requests == 1;
  if (!is_one_asked || state.is_end_armed || !state.hosts[e.host].was_asked) return;
  HostIndex to = e.host;
  if (e.silence) {
    const auto other = std::ranges::find_if(state.hosts, [](const FanOutHost& one) {
      return lives(one) && !one.silence && !one.exit_code && !one.was_asked;
    });
    if (other == state.hosts.end()) return;
    other->was_asked = true;
    to = static_cast<HostIndex>(other - state.hosts.begin());
  }
  state.was_sent_again = true;
  out.emplace_back(SendSignal{to, SIGTERM});
}

FanOutActions on(FanOutState& state, const HostContact& e) {
  FanOutActions out;
  auto& host = state.hosts[e.host];
  if (host.phase != HostPhase::running || host.exit_code) return out;
  if (host.silence && e.silence) {
    host.silence->until = e.silence->until;  // the transport waits longer
    watch_end(state, out);
    return out;
  }
  host.silence = e.silence;
  host.is_apart = host.is_apart || e.silence;
  if (state.phase != FanOutPhase::running || state.is_detached) return out;
  watch_end(state, out);
  if (!host.silence || !leaves_silent(state)) out.emplace_back(TellContact{e.host});
  if (e.silence) wait_longer_if_alone(state, *e.silence, out);
  pass_stop_on(state, e, out);
  leave_silent(state, out);
  return out;
}

FanOutActions on(FanOutState& state, const HostReportedEnd& e) {
  auto& host = state.hosts[e.host];
  // What a host says that we let go before the job began is no end of the job.
  if (host.phase != HostPhase::running || host.exit_code) return {};
  host.exit_code = e.exit_code;
  host.ended_at = e.at;
  const bool is_alone = JobVerdict::is_of_one_node(e.exit_code);
  // Told to end, as the job had ended on other hosts or couldn't go on: no end of the job either.
  const bool was_told = state.is_rest_told || (host.is_closed && state.verdict.code());
  const bool is_of_ours = was_told && e.exit_code == 128 + SIGTERM;
  if (!is_of_ours && (!is_alone || !host.is_closed)) state.verdict.add(e.exit_code);
  FanOutActions out;
  // A transport may wait for the end of its input.
  if (!std::exchange(host.is_closed, true)) out.emplace_back(CloseLifeLine{e.host});
  // The job may go on without a host that ended alone, for days.
  if (!is_alone && !std::exchange(state.is_end_armed, true)) arm_end(state, out);
  if (state.phase == FanOutPhase::running && has_succeeded_without_the_rest(state))
    out.emplace_back(ArmFanOutTimer{FanOutTimer::end, state.policy.apart_patience});
  if (is_alone || is_refusal(e.exit_code)) heed_missing(state, e.host, out);
  watch_end(state, out);
  watch_rest(state, out);
  return out;
}

FanOutActions on(FanOutState& state, const TransportExited& e) {
  FanOutActions out;
  auto& host = state.hosts[e.host];
  const bool was_running = host.phase == HostPhase::running;
  const bool is_early = host.phase == HostPhase::starting || host.phase == HostPhase::prepared;
  host.phase = HostPhase::gone;
  if (state.phase == FanOutPhase::starting && is_early) {
    fail(state, e.host, {HostTrouble::What::exited, e.status, 0, e.last_words}, out);
    after_answer(state, out);
  }
  // A daemon that refused what it had agreed to: the others would wait for this host.
  const bool never_ran = state.policy.uses_daemons && was_running && host.job.empty() &&
                         state.phase == FanOutPhase::running && state.stop_signal == 0;
  if (never_ran) {
    state.has_failed = true;
    if (!host.trouble) host.trouble = HostTrouble{HostTrouble::What::exited, e.status, 0, {}};
    out.emplace_back(TellNotStarted{e.host});
    leave(state, out);
  } else if (was_running && !host.exit_code && !host.is_closed) {
    out.emplace_back(TellLost{e.host, e.status, e.last_words});
    heed_missing(state, e.host, out);
  }
  watch_rest(state, out);
  detach_if_begun(state, out);
  finish_if_empty(state, out);
  return out;
}

// The coordinator passes a signal on to all nodes, so one host is enough; a user who asks again may
// do so because that one doesn't hear.
FanOutActions pass_on(FanOutState& state, int signo) {
  FanOutActions out;
  const bool to_all = ends_any_job(signo) && state.stop_requests > 1;
  // One whose part has ended may live on, until its connection ends: nobody hears there.
  const bool is_any_heard = std::ranges::any_of(state.hosts, [](const FanOutHost& host) {
    return lives(host) && !host.exit_code && !host.silence;
  });
  for_living(state, [&](HostIndex i, FanOutHost& host) {
    const bool hears = !host.exit_code && (!host.silence || !is_any_heard);
    if (!to_all && (!hears || !out.empty())) return;
    host.was_asked = host.was_asked || ends_any_job(signo);
    out.emplace_back(SendSignal{i, signo});
  });
  return out;
}

// A host that can't be reached would hold the command until the network is back. The end of its
// connection ends its part, or its lease does where no coordinator is reached from there.
void leave_the_rest(FanOutState& state, FanOutActions& out) {
  state.phase = FanOutPhase::leaving;
  for_living(state, [&](HostIndex i, FanOutHost& host) {
    host.is_closed = true;
    if (!host.exit_code) out.emplace_back(TellLeft{i});
    out.emplace_back(KillTransport{i});
  });
  finish_if_empty(state, out);
}

// The jobs go on without acc-ctl, which only follows them.
void let_go(FanOutState& state, int exit_code, FanOutActions& out) {
  if (state.phase == FanOutPhase::leaving || state.phase == FanOutPhase::finished) return;
  for (auto& host : state.hosts) {
    if (host.phase == HostPhase::waiting) host.phase = HostPhase::gone;
  }
  state.left = exit_code;
  if (exit_code != 0) out.emplace_back(TellLetGo{});
  leave(state, out);
}

// Of what acc-ctl gets only a Ctrl-C is for the jobs, and not the end of its terminal or its
// session. They are stopped as acc-ctl stop does it: a node that hasn't found the others yet learns
// of it only from here.
FanOutActions on_signal_of_follower(FanOutState& state, int signo) {
  FanOutActions out;
  if (!ends_any_job(signo)) return pass_on(state, signo);
  const bool is_order = signo == SIGINT && state.phase == FanOutPhase::running &&
                        state.stop_requests + 1 < state.policy.leaves_at;
  if (is_order) {
    ++state.stop_requests;
    state.stop_signal = signo;
    for_living(state, [&](HostIndex i, const FanOutHost& host) {
      if (!host.exit_code) out.emplace_back(SendSignal{i, SIGTERM});
    });
    out.emplace_back(TellAsked{});
  } else if (state.phase == FanOutPhase::leaving) {
    for_living(state,
               [&](HostIndex i, const FanOutHost&) { out.emplace_back(KillTransport{i}); });
  } else {
    let_go(state, 128 + signo, out);
  }
  return out;
}

FanOutActions on(FanOutState& state, const FanOutReaderGone&) {
  FanOutActions out;
  if (state.policy.leaves_at != 0) let_go(state, 0, out);
  return out;
}

FanOutActions on(FanOutState& state, const FanOutSignal& e) {
  if (state.policy.leaves_at != 0) return on_signal_of_follower(state, e.signo);
  FanOutActions out;
  if (ends_any_job(e.signo)) {
    ++state.stop_requests;
    if (state.stop_signal == 0) state.stop_signal = e.signo;
  }
  switch (state.phase) {
    case FanOutPhase::running:
      out = pass_on(state, e.signo);
      if (!ends_any_job(e.signo) || state.stop_requests < kHurriedStops) return out;
      if (state.stop_requests == kHurriedStops) {
        out.emplace_back(ArmFanOutTimer{FanOutTimer::hurry, state.policy.hurry_patience});
      } else {
        leave_the_rest(state, out);
      }
      return out;
    case FanOutPhase::starting:
      if (!ends_any_job(e.signo)) return out;
      for (auto& host : state.hosts) {
        if (host.phase == HostPhase::waiting) host.phase = HostPhase::gone;
      }
      out.emplace_back(TellStoppedEarly{e.signo});
      state.has_failed = false;
      leave(state, out);
      return out;
    case FanOutPhase::leaving:
      if (!ends_any_job(e.signo)) return out;
      for_living(state,
                 [&](HostIndex i, const FanOutHost&) { out.emplace_back(KillTransport{i}); });
      return out;
    case FanOutPhase::finished:
      break;
  }
  return out;
}

FanOutActions on(FanOutState& state, const FanOutTimerFired& e) {
  FanOutActions out;
  switch (e.timer) {
    case FanOutTimer::start:
    case FanOutTimer::verdict:
      if (state.phase != FanOutPhase::starting) return out;
      state.has_failed = true;
      give_verdict(state, out);
      return out;
    case FanOutTimer::end:
      if (state.phase != FanOutPhase::running) return out;
      for_living(state, [&](HostIndex i, FanOutHost& host) {
        leave_if_silent(state, i, host, out);
        if (!host.exit_code && !host.is_closed) out.emplace_back(TellLate{i});
      });
      leave(state, out);
      return out;
    case FanOutTimer::apart:
      state.is_apart_armed = false;
      state.is_apart_over = is_end_known(state);
      leave_silent(state, out);
      return out;
    case FanOutTimer::stop:
      if (state.phase != FanOutPhase::running) return out;
      // One that is stopping already takes SIGTERM for the repetition of a scheduler.
      for_living(state, [&](HostIndex i, const FanOutHost& host) {
        if (!host.exit_code) out.emplace_back(SendSignal{i, SIGTERM});
      });
      leave_silent(state, out);
      return out;
    case FanOutTimer::rest:
      end_the_rest(state, out);
      return out;
    case FanOutTimer::hurry:
      if (state.phase == FanOutPhase::running) leave_the_rest(state, out);
      return out;
    case FanOutTimer::leave:
      if (state.phase != FanOutPhase::leaving) return out;
      for_living(state,
                 [&](HostIndex i, const FanOutHost&) { out.emplace_back(KillTransport{i}); });
      return out;
  }
  return out;
}

}  // namespace

FanOutState fan_out_over(std::size_t hosts, FanOutPolicy policy) {
  FanOutState state;
  state.policy = std::move(policy);
  state.hosts.resize(hosts);
  return state;
}

bool has_ended_before_detach(const FanOutState& state) {
  const bool may = state.policy.detaches && !state.is_detached && !state.missed && !state.left &&
                   !state.has_failed && state.stop_signal == 0;
  return may && std::ranges::all_of(state.hosts, [](const FanOutHost& host) {
           return host.exit_code && !is_refusal(*host.exit_code) &&
                  *host.exit_code != to_int(ExitCode::unfit);
         });
}

FanOutActions step(FanOutState& state, const FanOutEvent& event) {
  return std::visit([&](const auto& e) { return on(state, e); }, event);
}

}  // namespace acc::agent
