#include "launcher/ctl/bridge_machine.hpp"

#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "common/json_bytes.hpp"
#include "common/text.hpp"
#include "common/version.hpp"
#include "launcher/ctl/job_list.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace acc::ctl {

using Json = nlohmann::json;

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

constexpr unsigned kOk = 200;
constexpr unsigned kCreated = 201;
constexpr unsigned kAccepted = 202;
constexpr unsigned kNotFound = 404;
constexpr unsigned kConflict = 409;
constexpr unsigned kBeyondEnd = 416;
constexpr unsigned kTooMany = 429;

std::string at_node(const BridgeState& state, const std::string& path) {
  return (state.wish.node.empty() ? "" : "/v1/nodes/" + state.wish.node) + path;
}
std::string of_job(const BridgeState& state, const std::string& rest = {}) {
  return at_node(state, "/v1/jobs/" + state.job + rest);
}
/// Two parts of a launch may be on one node; its operator reads which is which.
std::string job_name_of(const BridgeWish& wish) {
  return wish.launch + "." + std::to_string(wish.node_rank);
}

std::string submission_of(const BridgeState& state, bool only_checks) {
  const auto& wish = state.wish;
  auto env = Json::object();
  for (const auto& [name, value] : state.variables) env[name] = json_text_of(value);
  Json body{{"name", job_name_of(wish)},
            {"words", json_texts_of(wish.words)},
            {"working_directory", json_text_of(state.folder)},
            {"env", std::move(env)},
            {"umask", wish.umask},
            {"slots", wish.slots},
            {"wait", false}};
  if (wish.has_secret)
    body["launch"] = {{"id", wish.launch}, {"nodes", wish.nodes}, {"node_rank", wish.node_rank}};
  if (only_checks) body["check"] = true;
  return to_line(body);
}

constexpr std::string_view kOfSubmit = ": submit with --wait, or later";

/// It has no room now, and may have it later.
bool is_full(unsigned status, const std::string& body) {
  return status == kTooMany && error_of(body).ends_with(kOfSubmit);
}

/// One line: what the daemon says, and what to do where that isn't in it.
std::string refusal_text(unsigned status, const std::string& body) {
  auto why = error_of(body);
  std::ranges::replace(why, '\n', ' ');
  if (why.empty()) return "its acc-agent answers with status " + std::to_string(status);
  if (is_full(status, body)) {
    why.resize(why.size() - kOfSubmit.size());
    why += agent::kNoRoomCure;
  }
  // What acc-launch there says has its name in front.
  constexpr std::string_view kOurs = "acc-launch: ";
  if (why.starts_with(kOurs)) why.erase(0, kOurs.size());
  return why;
}

int code_of_refusal(unsigned status, const std::string& body) {
  if (is_full(status, body)) return agent::kNoRoomExit;
  const auto code = text_of(parse_json(body), "code");
  if (code == "no_such_user" || code == "authentication_failed" || code == "version_differs")
    return to_int(ExitCode::refused);
  if (status == 400) return to_int(ExitCode::usage);
  return to_int(status == 502 || status == 504 || code == "busy" ? ExitCode::nodes_missing
                                                                 : ExitCode::failure);
}

/// The request may have been carried out all the same.
bool is_uncertain(unsigned status, const std::string& code, const std::string& why) {
  return code == "node_unreachable" || code == "no_answer" ||
         (status == 503 && why.starts_with("not done within"));
}

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
  const std::string from = stream.offset ? std::to_string(*stream.offset) : "end";
  out.emplace_back(OpenStream{
      is_err, of_job(state, std::string{"/logs?stream="} + (is_err ? "stderr" : "stdout") +
                                "&format=raw&follow=1&from=" + from)});
}

void ask_state(const BridgeState& state, BridgeActions& out) {
  out.emplace_back(AskDaemon{BridgeAsk::state, "GET", of_job(state)});
}

void ask_stop(const BridgeState& state, BridgeActions& out) {
  out.emplace_back(AskDaemon{BridgeAsk::stop, "POST", of_job(state, "/stop"), "{}"});
}

void pass_signal(BridgeState& state, int signo, BridgeActions& out) {
  if (signo == SIGTERM) return ask_stop(state, out);
  out.emplace_back(AskDaemon{BridgeAsk::signal, "POST", of_job(state, "/signal"),
                             to_line(Json{{"signal", signal_name(signo)}})});
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
  out.emplace_back(ArmBridgeTimer{BridgeTimer::state, kStateEvery});
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
  if (state.phase == BridgePhase::reading) state.folder = order.path;
}
void obey(BridgeState& state, const agent::SetVariable& order, BridgeActions&) {
  if (state.phase == BridgePhase::reading) state.variables[order.name] = order.value;
}
void obey(BridgeState& state, const agent::Prepare&, BridgeActions& out) {
  if (state.phase != BridgePhase::reading) return;
  state.phase = BridgePhase::checking;
  if (!state.wish.job.empty()) {
    state.job = state.wish.job;
    return ask_state(state, out);
  }
  out.emplace_back(
      AskDaemon{BridgeAsk::check, "POST", at_node(state, "/v1/jobs"), submission_of(state, true)});
}
void obey(BridgeState& state, const agent::Go&, BridgeActions& out) {
  if (state.phase != BridgePhase::prepared) return;
  if (!state.wish.job.empty()) return begin(state, state.wish.job, out);
  state.phase = BridgePhase::submitting;
  out.emplace_back(AskDaemon{BridgeAsk::submit, "POST", at_node(state, "/v1/jobs"),
                             submission_of(state, false)});
}
void obey(BridgeState& state, const agent::PassSignal& order, BridgeActions& out) {
  const bool is_stop = order.signo != SIGUSR1 && order.signo != SIGUSR2;
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
  const auto answer = parse_json(e.body);
  if (e.status != kOk)
    return complain(state, refusal_text(e.status, e.body), code_of_refusal(e.status, e.body), out);
  state.phase = BridgePhase::prepared;
  out.emplace_back(SendMark{agent::Prepared{text_of(answer, "version"), text_of(answer, "daemon")}});
}

void look_for_job(BridgeState& state, BridgeActions& out) {
  out.emplace_back(ArmBridgeTimer{BridgeTimer::find, kLookPause});
  ++state.looks;
}

void on_submit(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::submitting) return;
  const auto answer = parse_json(e.body);
  if (e.status == kCreated && !text_of(answer, "id").empty())
    return begin(state, text_of(answer, "id"), out);
  const auto code = text_of(answer, "code");
  state.last_failure = refusal_text(e.status, e.body);
  if (is_uncertain(e.status, code, state.last_failure)) return look_for_job(state, out);
  complain(state, state.last_failure, code_of_refusal(e.status, e.body), out);
}

// The answer to the submission was lost: is there such a job?
void on_find(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  if (state.phase != BridgePhase::submitting) return;
  const auto jobs = e.status == kOk ? jobs_of_service(e.body, {}) : std::nullopt;
  if (jobs) {
    // One that was stopped is of a former try of a launch that waits for room.
    const auto found = std::ranges::find_if(*jobs, [&](const JobRow& job) {
      return job.name == job_name_of(state.wish) && job.state != "stopped";
    });
    if (found != jobs->end()) return begin(state, found->id, out);
  }
  if (state.looks < kMostLooks) return look_for_job(state, out);
  complain(state, "the job could not be started: " + state.last_failure, ExitCode::nodes_missing,
           out);
}

int code_of_end(const JobRow& job) {
  if (job.exit_code) return *job.exit_code & 0xff;
  return job.state == "stopped" ? 128 + SIGTERM : to_int(ExitCode::agent_lost);
}

/// The job's agent told them on its standard error, a file that the same full disk may have cut.
void tell_losses(const std::string& body, BridgeActions& out) {
  const auto job = parse_json(body);
  const auto report = job.is_object() ? job.find("report") : job.end();
  if (!job.is_object() || report == job.end() || !report->is_object()) return;
  const auto losses = report->find("losses");
  if (losses == report->end() || !losses->is_array()) return;
  const auto number = [](const Json& loss, const char* key) {
    const auto found = loss.find(key);
    const bool is_count = found != loss.end() && found->is_number_unsigned();
    return is_count ? found->get<std::uint64_t>() : 0;
  };
  for (const auto& loss : *losses) {
    if (!loss.is_object()) continue;
    out.emplace_back(SendMark{agent::OutputLost{number(loss, "lines"), number(loss, "bytes"),
                                                text_of(loss, "where"), text_of(loss, "why")}});
  }
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

void on_state(BridgeState& state, const BridgeAnswered& e, BridgeActions& out) {
  const auto jobs = jobs_of_service("{\"jobs\": [" + e.body + "]}", {});
  const bool is_known = e.status == kOk && jobs && jobs->size() == 1;
  if (state.phase == BridgePhase::checking) {
    if (!is_known) return complain(state, refusal_text(e.status, e.body), ExitCode::failure, out);
    state.phase = BridgePhase::prepared;
    out.emplace_back(SendMark{agent::Prepared{version()}});
    return;
  }
  if (state.phase != BridgePhase::running) return;
  if (e.status == kNotFound)
    return complain(state, "its job " + state.job + " was removed", ExitCode::agent_lost, out);
  if (!is_known) {
    state.last_failure = refusal_text(e.status, e.body);
    out.emplace_back(ArmBridgeTimer{BridgeTimer::state, kStateSoon});
    return;
  }
  heard(state, out);
  const auto& job = jobs->front();
  if (is_over(job.state)) {
    const bool is_news = !state.ended;
    state.ended = code_of_end(job);
    if (is_news) tell_losses(e.body, out);
    // What ran has told its end itself; a reason is there if it could not.
    if (is_news && job.state == "failed" && (!job.exit_code || !job.reason.empty()))
      out.emplace_back(TellBridge{
          "its job " + state.job + " failed: " + job.reason + "; what it wrote: acc-ctl logs " +
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
  // Not found, or ended already.
  const bool is_heard = e.status == kAccepted || e.status == kConflict || e.status == kNotFound;
  if (!is_heard) {
    state.stop_failure = refusal_text(e.status, e.body);
    out.emplace_back(ArmBridgeTimer{BridgeTimer::stop, kStateSoon});
    return;
  }
  state.is_stop_heard = true;
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
      // A job that has ended takes none.
      if (e.status != kAccepted && e.status != kConflict && e.status != kNotFound)
        out.emplace_back(
            TellBridge{"the signal was not passed on: " + refusal_text(e.status, e.body)});
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
        complain(state, e.why, ExitCode::nodes_missing, out);
      } else {
        out.emplace_back(ArmBridgeTimer{BridgeTimer::state, kStateSoon});
      }
      break;
    case BridgeAsk::stop:
      state.stop_failure = e.why;
      out.emplace_back(ArmBridgeTimer{BridgeTimer::stop, kStateSoon});
      break;
    case BridgeAsk::signal:
      out.emplace_back(TellBridge{"the signal was not passed on: " + e.why});
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
  if (e.status == kOk && e.is_whole) {
    stream.is_whole = true;
    if (is_all_copied(state)) ask_state(state, out);
    return out;
  }
  if (e.status == kNotFound || e.status == kBeyondEnd) {
    complain(state,
             "its output can't be read any further: " + refusal_text(e.status, e.body) +
                 "; the job there goes on",
             ExitCode::output, out);
    return out;
  }
  if (e.status != 0 && e.status != kOk) state.last_failure = refusal_text(e.status, e.body);
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
    out.emplace_back(AskDaemon{BridgeAsk::find, "GET", at_node(state, "/v1/jobs")});
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

std::string events_target(const BridgeState& state, std::uint64_t from) {
  if (state.job.empty()) return {};
  return of_job(state, "/logs?stream=events&format=raw&follow=1&from=" + std::to_string(from));
}

}  // namespace acc::ctl
