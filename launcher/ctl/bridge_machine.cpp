#include "launcher/ctl/bridge_machine.hpp"

#include "common/exit_codes.hpp"
#include "common/passed_signals.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/ctl/bridge_answers.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/job_list.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::ctl {

namespace {

// How long a job's daemon may be away: a restart takes a second, an upgrade some.
constexpr Millis kContactPatience{60'000};
/// Where no host of the launch is in contact: this machine may have lost its network.
constexpr Millis kLonePatience{600'000};
constexpr Millis kStateEvery{10'000};
constexpr Millis kStateSoon{500};
/// From the last answer on: one that was due has not come for 5 s.
constexpr Millis kSilence = kStateEvery + Millis{5'000};
constexpr Millis kFirstBridgePause{50};
constexpr Millis kLongestBridgePause{2'000};
constexpr Millis kLookPause{500};
constexpr unsigned kMostLooks = 20;  // a submission is carried out within 30 s or not at all
/// From the end of the life line to ours: a job's grace, and what SIGKILL takes.
constexpr Millis kEndPatience{120'000};
constexpr Millis kAskedPatience{4'000};  // acc-ctl, which leaves, waits a second longer

void finish(BridgeState& state, int code, BridgeActions& out) {
  if (std::exchange(state.phase, BridgePhase::finished) == BridgePhase::finished) return;
  out.emplace_back(FinishBridge{code});
}

void complain(BridgeState& state, std::string text, int code, BridgeActions& out) {
  out.emplace_back(TellBridge{std::move(text)});
  finish(state, code, out);
}
void complain(BridgeState& state, std::string text, ExitCode code, BridgeActions& out) {
  complain(state, std::move(text), to_int(code), out);
}

void open_stream(BridgeState& state, bool is_err, BridgeActions& out) {
  auto& stream = state.streams[is_err ? 1 : 0];
  if (stream.is_open || stream.is_whole) return;
  stream.is_open = true;
  out.emplace_back(OpenStream{is_err, output_target(state.wish, state.job, is_err, stream.offset)});
}

void ask_state(const BridgeState& state, BridgeActions& out) {
  out.emplace_back(state_request(state.wish, state.job));
}

void ask_stop(const BridgeState& state, BridgeActions& out) {
  out.emplace_back(stop_request(state.wish, state.job));
}

void pass_signal(BridgeState& state, int signo, BridgeActions& out) {
  if (signo == SIGTERM) return ask_stop(state, out);
  if (state.is_signal_late && std::ranges::count(state.signals, signo) != 0) return;
  state.signals.push_back(signo);
  if (state.signals.size() == 1) out.emplace_back(signal_request(state.wish, state.job, signo));
}

// One after the other: a second Ctrl-C means another thing than the first.
void pass_next_signal(BridgeState& state, BridgeActions& out) {
  state.is_signal_late = false;
  if (!state.signals.empty()) state.signals.erase(state.signals.begin());
  if (!state.signals.empty())
    out.emplace_back(signal_request(state.wish, state.job, state.signals.front()));
}

// It didn't get there: a daemon is being restarted, say. Who presses Ctrl-C again meanwhile wants
// the first one heard: a second one within milliseconds of it would leave no time for a checkpoint.
void pass_signal_later(BridgeState& state, const std::string& why, BridgeActions& out) {
  auto& signals = state.signals;
  for (auto one = signals.begin(); one != signals.end(); ++one)
    signals.erase(std::remove(one + 1, signals.end(), *one), signals.end());
  if (!std::exchange(state.is_signal_late, true))
    out.emplace_back(TellBridge{"the signal is not passed on yet: " + why + "; it is tried again"});
  out.emplace_back(ArmBridgeTimer{BridgeTimer::signal, kStateSoon});
}

// Of two SIGINT the second one is a hurry: where the node may have carried it out, it isn't tried
// again. A daemon that ends without an answer (BridgeUnanswered, node_unreachable) hardly has.
void on_signal(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  const auto why = is_heard(e.status) ? std::string{} : refusal_text(e.status, e.body);
  const bool may_be_done = is_unheard(e.status, e.body) || is_still_in_progress(e.status, e.body);
  if (!may_be_done && may_be_asked_again(e.status, e.body))
    return pass_signal_later(state, why, out);
  if (!why.empty()) out.emplace_back(TellBridge{"the signal was not passed on: " + why});
  pass_next_signal(state, out);
}

bool is_all_copied(const BridgeState& state) {
  return std::ranges::all_of(state.streams, &BridgeStream::is_whole);
}

void end_if_over(BridgeState& state, BridgeActions& out) {
  if (state.phase != BridgePhase::running || !state.ended || !is_all_copied(state)) return;
  out.emplace_back(SendMark{agent::JobEnded{*state.ended}});
  finish(state, 0, out);
}

void stop_copying(BridgeState& state, BridgeActions& out) {
  for (const bool is_err : {false, true}) {
    auto& stream = state.streams[is_err ? 1 : 0];
    if (std::exchange(stream.is_open, false)) out.emplace_back(CloseStream{is_err});
    stream.is_whole = true;
  }
}

void heard(BridgeState& state, BridgeActions& out) {
  state.last_failure.clear();  // its condition is over
  state.patience = kContactPatience;
  out.emplace_back(ArmBridgeTimer{BridgeTimer::contact, kContactPatience});
  out.emplace_back(ArmBridgeTimer{BridgeTimer::silence, kSilence});
  if (std::exchange(state.is_silent, false)) out.emplace_back(SendMark{agent::ContactBack{}});
}

void begin(BridgeState& state, std::string job, BridgeActions& out) {
  state.job = std::move(job);
  state.phase = BridgePhase::running;
  out.emplace_back(SendMark{agent::JobStarted{state.job}});
  heard(state, out);
  out.emplace_back(
      ArmBridgeTimer{BridgeTimer::state, state.wish.detaches ? kStateSoon : kStateEvery});
  if (state.wish.detaches) {
    for (auto& stream : state.streams) stream.is_whole = true;
  }
  open_stream(state, false, out);
  open_stream(state, true, out);
  for (const int signo : std::exchange(state.held_signals, {})) pass_signal(state, signo, out);
  if (!state.is_line_closed) return;
  ask_stop(state, out);
  out.emplace_back(ArmBridgeTimer{BridgeTimer::end, kEndPatience});
}

// ---- orders ----

void obey(BridgeState& state, const agent::SetFolder& order, BridgeActions&) {
  if (state.phase == BridgePhase::reading) state.context.folder = order.path;
}
void obey(BridgeState& state, const agent::SetVariable& order, BridgeActions&) {
  if (state.phase == BridgePhase::reading) state.context.variables[order.name] = order.value;
}
void prepare_attached(BridgeState& state, BridgeActions& out) {
  state.phase = BridgePhase::prepared;
  out.emplace_back(SendMark{agent::Prepared{version()}});
}

// The job is there whether or not its node answers now: it is asked again, as one that is lost
// later. Where its output ended at this moment isn't known, so all of it is copied.
void prepare_away(BridgeState& state, BridgeActions& out) {
  for (auto& stream : state.streams) stream.offset = 0;
  prepare_attached(state, out);
}

void obey(BridgeState& state, const agent::Prepare&, BridgeActions& out) {
  if (state.phase != BridgePhase::reading) return;
  state.phase = BridgePhase::checking;
  if (!state.wish.job.empty()) {
    state.job = state.wish.job;
    return state.wish.is_away ? prepare_away(state, out) : ask_state(state, out);
  }
  out.emplace_back(check_request(state.wish, state.context));
}
void obey(BridgeState& state, const agent::Go&, BridgeActions& out) {
  if (state.phase != BridgePhase::prepared) return;
  if (!state.wish.job.empty()) return begin(state, state.wish.job, out);
  state.phase = BridgePhase::submitting;
  out.emplace_back(submit_request(state.wish, state.context));
}
void obey(BridgeState& state, const agent::PassSignal& order, BridgeActions& out) {
  const bool is_stop = ends_any_job(order.signo);
  if (is_stop) ++state.stops;
  const bool leaves = !state.wish.job.empty() && (state.wish.only_looks || state.stops > 1);
  if (is_stop && leaves) return finish(state, 128 + order.signo, out);
  switch (state.phase) {
    case BridgePhase::running:
      return pass_signal(state, order.signo, out);
    case BridgePhase::submitting:
      return state.held_signals.push_back(order.signo);
    case BridgePhase::finished:
      return;
    default:
      if (is_stop) finish(state, 128 + order.signo, out);
  }
}
void obey(BridgeState&, const agent::SendEvents&, BridgeActions&) {}  // the bridge itself does it
void obey(BridgeState&, const agent::AskContact&, BridgeActions&) {}  // not of a bridge
void obey(BridgeState& state, const agent::WaitLonger&, BridgeActions& out) {
  if (state.phase != BridgePhase::running || !state.is_silent) return;
  state.patience = kLonePatience;
  out.emplace_back(ArmBridgeTimer{BridgeTimer::contact, kLonePatience - kSilence});
  out.emplace_back(SendMark{agent::ContactLost{kSilence, kLonePatience}});
}
void obey(BridgeState& state, const agent::Leave&, BridgeActions& out) {
  if (state.phase == BridgePhase::running) finish(state, 0, out);
}

// ---- answers ----

void on_check(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::checking) return;
  if (e.status != kHttpOk)
    return complain(state, refusal_text(e.status, e.body), code_of_refusal(e.status, e.body), out);
  state.phase = BridgePhase::prepared;
  out.emplace_back(SendMark{prepared_by(e.body)});
}

void look_for_job(BridgeState& state, BridgeActions& out) {
  out.emplace_back(ArmBridgeTimer{BridgeTimer::find, kLookPause});
  ++state.looks;
}

void on_submit(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::submitting) return;
  if (auto job = submitted_job(e.status, e.body); !job.empty())
    return begin(state, std::move(job), out);
  state.last_failure = refusal_text(e.status, e.body);
  if (is_uncertain(e.status, e.body)) return look_for_job(state, out);
  complain(state, state.last_failure, code_of_refusal(e.status, e.body), out);
}

// The answer to the submission was lost: is there such a job?
void on_find(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::submitting) return;
  if (auto job = listed_job(e.status, e.body, bridge_job_name(state.wish), state.wish.user);
      !job.empty())
    return begin(state, std::move(job), out);
  if (state.looks < kMostLooks) return look_for_job(state, out);
  complain(state, "the job could not be started: " + state.last_failure, ExitCode::nodes_missing,
           out);
}

/// The streams end by themselves when the job has; one that has stood still since is dead.
void revive_streams(BridgeState& state, BridgeActions& out) {
  for (const bool is_err : {false, true}) {
    auto& stream = state.streams[is_err ? 1 : 0];
    if (stream.is_whole || std::exchange(stream.has_moved, false)) continue;
    if (std::exchange(stream.is_open, false)) out.emplace_back(CloseStream{is_err});
    open_stream(state, is_err, out);
  }
}

std::string why_of(const JobRow& job, const std::string& body) {
  if (!job.reason.empty() || !job.exit_code) return job.reason;
  const auto why = start_failure_of(body);
  return "exit code " + std::to_string(*job.exit_code) + (why.empty() ? "" : ": " + why);
}

// Where the disk is full that keeps its output, the node's own warning waits for room, too.
void tell_output_refusal(BridgeState& state, const std::string& body, BridgeActions& out) {
  auto why = output_refusal_of(body);
  const bool is_news = !why.empty() && why != state.output_refusal && !state.wish.detaches;
  state.output_refusal = why;
  if (!is_news) return;
  out.emplace_back(TellBridge{"warning: what its part of the job writes can't be kept there: " +
                              printable(why, 200) +
                              "; output is being dropped, the workers go on"});
}

void on_state(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  const auto job = job_answered(e.status, e.body);
  if (state.phase == BridgePhase::checking) {
    if (job) return prepare_attached(state, out);
    if (is_away(e.status, e.body)) return prepare_away(state, out);
    return complain(state, refusal_text(e.status, e.body), ExitCode::failure, out);
  }
  if (state.phase != BridgePhase::running) return;
  if (e.status == kHttpNotFound)
    return complain(state, "its job " + state.job + " was removed", ExitCode::agent_lost, out);
  if (!job) {
    // Not asked again at once where that is what keeps others from asking.
    const bool is_full = is_there_but_full(e.status, e.body);
    if (is_full) heard(state, out);
    state.last_failure = refusal_text(e.status, e.body);
    out.emplace_back(ArmBridgeTimer{BridgeTimer::state, is_full ? 4 * kStateSoon : kStateSoon});
    return;
  }
  heard(state, out);
  tell_output_refusal(state, e.body, out);
  if (is_over(job->state)) {
    const bool is_news = !state.ended;
    state.ended = code_of_end(*job);
    if (is_news) {
      for (auto& loss : losses_of(e.body)) out.emplace_back(SendMark{std::move(loss)});
    }
    // What ran has told its end itself; a reason is there if it could not. Nobody has read what a
    // job wrote that was to be left.
    const bool is_untold = state.wish.detaches || !job->exit_code || !job->reason.empty();
    if (is_news && job->state == "failed" && is_untold)
      out.emplace_back(TellBridge{
          "its job " + state.job + " failed: " + why_of(*job, e.body) +
          "; what it wrote: acc-ctl logs " +
          (state.wish.node.empty() ? "" : "--node " + state.wish.node + " ") + state.job});
    if (!is_news) revive_streams(state, out);
  }
  const bool is_hurried = state.ended || state.is_line_closed || is_all_copied(state);
  out.emplace_back(ArmBridgeTimer{BridgeTimer::state, state.ended  ? 4 * kStateSoon
                                                      : is_hurried ? kStateSoon
                                                                   : kStateEvery});
  end_if_over(state, out);
}

void on_stop(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::running) return;
  if (!is_heard(e.status)) {
    state.stop_failure = refusal_text(e.status, e.body);
    out.emplace_back(ArmBridgeTimer{BridgeTimer::stop, kStateSoon});
    return;
  }
  state.is_stop_heard = true;
  if (state.is_line_closed && !state.wish.job.empty())
    return finish(state, to_int(ExitCode::nodes_missing), out);
  ask_state(state, out);
}

BridgeActions on(BridgeState& state, const BridgeOrdered& e) {
  BridgeActions out;
  std::visit([&](const auto& order) { obey(state, order, out); }, e.order);
  return out;
}

BridgeActions on(BridgeState& state, const BridgeLineClosed&) {
  BridgeActions out;
  state.is_line_closed = true;
  const bool is_attached = !state.wish.job.empty();
  if (state.phase == BridgePhase::submitting && !is_attached)
    return out;  // stopped when it is known
  // acc-ctl said that the job was asked to stop.
  if (state.phase == BridgePhase::running && is_attached && state.stops > 0 &&
      !state.is_stop_heard) {
    out.emplace_back(ArmBridgeTimer{BridgeTimer::end, kAskedPatience});
    return out;
  }
  if (state.phase != BridgePhase::running || is_attached) {
    finish(state, to_int(ExitCode::nodes_missing), out);
    return out;
  }
  ask_stop(state, out);
  out.emplace_back(ArmBridgeTimer{BridgeTimer::end, kEndPatience});
  return out;
}

BridgeActions on(BridgeState& state, const BridgeAnswered& e) {
  BridgeActions out;
  switch (e.ask) {
    case BridgeAsk::check:
      on_check(state, e, out);
      break;
    case BridgeAsk::submit:
      on_submit(state, e, out);
      break;
    case BridgeAsk::find:
      on_find(state, e, out);
      break;
    case BridgeAsk::state:
      on_state(state, e, out);
      break;
    case BridgeAsk::stop:
      on_stop(state, e, out);
      break;
    case BridgeAsk::signal:
      on_signal(state, e, out);
      break;
  }
  return out;
}

BridgeActions on(BridgeState& state, const BridgeUnanswered& e) {
  BridgeActions out;
  if (state.phase == BridgePhase::finished) return out;
  state.last_failure = e.why;
  switch (e.ask) {
    case BridgeAsk::check:
      complain(state, e.why, ExitCode::nodes_missing, out);
      break;
    case BridgeAsk::submit:
      look_for_job(state, out);
      break;
    case BridgeAsk::find:
      on_find(state, {BridgeAsk::find, 0, {}}, out);
      break;
    case BridgeAsk::state:
      if (state.phase == BridgePhase::checking) {
        prepare_away(state, out);
      } else {
        out.emplace_back(ArmBridgeTimer{BridgeTimer::state, kStateSoon});
      }
      break;
    case BridgeAsk::stop:
      state.stop_failure = e.why;
      out.emplace_back(ArmBridgeTimer{BridgeTimer::stop, kStateSoon});
      break;
    case BridgeAsk::signal:
      pass_signal_later(state, e.why, out);
      break;
  }
  return out;
}

BridgeActions on(BridgeState& state, const BridgeStreamBegun& e) {
  state.streams[e.is_err ? 1 : 0].offset = e.from;
  return {};
}

BridgeActions on(BridgeState& state, const BridgeCopied& e) {
  auto& stream = state.streams[e.is_err ? 1 : 0];
  stream.offset = stream.offset.value_or(0) + e.bytes;
  stream.has_moved = true;
  stream.failures = 0;
  return {};
}

BridgeActions on(BridgeState& state, const BridgeStreamEnded& e) {
  BridgeActions out;
  auto& stream = state.streams[e.is_err ? 1 : 0];
  stream.is_open = false;
  if (state.phase != BridgePhase::running || stream.is_whole) return out;
  if (e.status == kHttpOk && e.is_whole) {
    stream.is_whole = true;
    if (is_all_copied(state)) ask_state(state, out);
    return out;
  }
  if (e.status == kHttpNotFound || e.status == kHttpRangeNotSatisfiable) {
    complain(state,
             "its output can't be read any further: " + refusal_text(e.status, e.body) +
                 "; the job there goes on",
             ExitCode::output, out);
    return out;
  }
  if (e.status != 0 && e.status != kHttpOk) state.last_failure = refusal_text(e.status, e.body);
  const auto pause =
      std::min(kLongestBridgePause, kFirstBridgePause * (1U << std::min(stream.failures, 8U)));
  ++stream.failures;
  out.emplace_back(ArmBridgeTimer{e.is_err ? BridgeTimer::err : BridgeTimer::out, pause});
  // Whether anything is reached at all shows sooner than by the next question.
  if (stream.failures == 1) out.emplace_back(ArmBridgeTimer{BridgeTimer::state, kStateSoon});
  return out;
}

BridgeActions on(BridgeState& state, const BridgeOutputGone&) {
  BridgeActions out;
  stop_copying(state, out);
  end_if_over(state, out);
  return out;
}

BridgeActions on(BridgeState& state, const BridgeTimerFired& e) {
  BridgeActions out;
  if (state.phase == BridgePhase::submitting && e.timer == BridgeTimer::find)
    out.emplace_back(find_request(state.wish));
  if (state.phase != BridgePhase::running) return out;
  switch (e.timer) {
    case BridgeTimer::contact:
      complain(state,
               "no answer for " + describe(state.patience) + ", so its part of the job (" +
                   state.job + ") is given up here" +
                   (state.last_failure.empty() ? "" : ": " + state.last_failure),
               ExitCode::nodes_missing, out);
      break;
    case BridgeTimer::silence:
      state.is_silent = true;
      out.emplace_back(SendMark{agent::ContactLost{kSilence, kContactPatience}});
      break;
    case BridgeTimer::state:
      ask_state(state, out);
      break;
    case BridgeTimer::stop:
      ask_stop(state, out);
      break;
    case BridgeTimer::signal:
      if (!state.signals.empty())
        out.emplace_back(signal_request(state.wish, state.job, state.signals.front()));
      break;
    case BridgeTimer::end:
      complain(state,
               state.is_stop_heard
                   ? "its job " + state.job + " was told to stop, and still runs"
                   : "its job " + state.job + " could not be stopped: " + state.stop_failure,
               ExitCode::agent_lost, out);
      break;
    case BridgeTimer::out:
      open_stream(state, false, out);
      break;
    case BridgeTimer::err:
      open_stream(state, true, out);
      break;
    case BridgeTimer::find:
      break;
  }
  return out;
}

}  // namespace

BridgeState bridge_of(BridgeWish wish) {
  BridgeState state;
  if (wish.skips_old) {
    for (auto& stream : state.streams) stream.offset.reset();
  }
  state.wish = std::move(wish);
  return state;
}

BridgeActions step(BridgeState& state, const BridgeEvent& event) {
  if (state.phase == BridgePhase::finished) return {};
  return std::visit([&](const auto& e) { return on(state, e); }, event);
}

}  // namespace acc::ctl
