#include "agent/agent_loop.hpp"
#include "agent/control_server.hpp"
#include "agent/job_name.hpp"
#include "agent/small_file.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

// What the control socket asks of this agent: requests become events, the state becomes a reply.
namespace acc::agent {

namespace {

// Beyond that many workers reading /proc for a request would hold up the loop.
constexpr std::size_t kMeasuredWorkers = 1024;
constexpr Millis kTablePatience{500};
constexpr Millis kRestartPatience{1'500};  // less than the daemon's own for a reply
constexpr std::size_t kShownWords = 64;

double seconds_of(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

std::optional<control::ProcessUsage> usage_of(pid_t pid) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  static const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return control::usage_from_stat(read_small_file("/proc/" + std::to_string(pid) + "/stat"), page,
                                  ticks);
}

/// The reply to a question that the coordinator may never answer: given once, by what is returned
/// or, when the time is over, with what `late` says.
std::function<void(std::string)> reply_within(boost::asio::io_context& io, Millis limit,
                                              std::function<std::string()> late,
                                              std::function<void(std::string)> reply) {
  struct Question {
    boost::asio::steady_timer timer;
    std::function<void(std::string)> reply;
  };
  const auto question =
      std::make_shared<Question>(Question{boost::asio::steady_timer{io, limit}, std::move(reply)});
  auto answer = [question](const std::string& text) {
    if (!question->reply) return;
    std::exchange(question->reply, nullptr)(text);
    question->timer.cancel();
  };
  question->timer.async_wait([answer, late](boost::system::error_code cancelled) {
    if (!cancelled) answer(late());
  });
  return answer;
}

}  // namespace

// After the first workers are on their way: a program that lives for a moment must not wait for it.
void AgentLoop::open_control() {
  if (finish_) return;
  auto place = find_control_place(std::getenv("ACC_JOB_FOLDER"), std::getenv("XDG_RUNTIME_DIR"),
                                  job_name(plan_), guardian_.pid != 0 ? guardian_.pid : ::getpid());
  if (place && !*place) return;
  Result<void> listening{};
  if (place) {
    control_ = std::make_unique<ControlServer>(
        io_, [this](const control::Request& request, uid_t uid, ControlServer::Reply reply) {
          on_control(request, uid, std::move(reply));
        });
    listening = control_->listen(std::move(**place));
  }
  if (place && listening) return;
  control_.reset();
  const auto& error = place ? listening.error() : place.error();
  log::info("no_control_socket", {{"job", job_id_}, {"why", error.what}});
}

void AgentLoop::on_control(const control::Request& request, uid_t uid,
                           std::function<void(std::string)> reply) {
  if (finish_) return reply(control::refusal("conflict", "the job is over"));
  const auto note = [&](const std::string& what) {
    messages_.note(what + " asked over the control socket by uid " + std::to_string(uid));
  };
  if (const auto* wanted = std::get_if<control::Status>(&request))
    return reply_status(*wanted, std::move(reply));
  if (const auto* wanted = std::get_if<control::Output>(&request)) {
    auto kept = output_.kept_output(wanted->local_rank, wanted->is_stderr, wanted->from);
    return reply(control::output_reply(
        {group_.round, kept.from, kept.end, std::move(kept.text), kept.is_captured}));
  }
  if (std::holds_alternative<control::Stacks>(request)) {
    if (group_.phase != Phase::running)
      return reply(control::refusal("conflict", "no worker runs now"));
    return collect_stacks("asked for over the control socket", [reply](const auto& answer) {
      reply(answer ? control::stacks_reply(answer->file, answer->text)
                   : control::refusal("failed", answer.error().what));
    });
  }
  if (const auto* stop = std::get_if<control::Stop>(&request)) {
    note("stop");
    reply(control::done());
    handle(StopAsked{stop->grace, clock_now()});
  } else if (const auto* signal = std::get_if<control::Signal>(&request)) {
    // What ends the job is heeded in any phase; the others only reach workers that are there.
    const bool is_lost = !job_ && group_.phase != Phase::running &&
                         !ends_job(signal->signo, group_.stop.preempt_signals);
    if (is_lost) return reply(control::refusal("conflict", "no worker runs now"));
    note(signal_name(signal->signo));
    reply(control::done());
    handle(SignalArrived{signal->signo, clock_now()});
  } else {
    const auto why = why_no_restart(group_);
    if (!why.empty()) return reply(control::refusal("conflict", why));
    note("restart");
    if (group_.coordinated) return ask_all_for_restart(std::move(reply));
    reply(control::done());
    restart_reason_ = "asked for over the control socket";
    handle(RestartAsked{clock_now()});
  }
  check_emptied();
}

// The other nodes are known to the coordinator, which may not answer: then without them.
void AgentLoop::reply_status(control::Status wanted, std::function<void(std::string)> reply) {
  const auto encoded = [this, wanted](std::vector<control::NodeView> table) {
    auto seen = view(wanted);
    if (wanted.gpus && guardian_.pid != 0) add_gpus(seen);
    seen.table = std::move(table);
    return control::encode(seen);
  };
  if (!job_ || !place_) return reply(encoded({}));
  const auto answer = reply_within(
      io_, kTablePatience, [encoded] { return encoded({}); }, std::move(reply));
  job_->table([answer, encoded](const std::vector<rendezvous::TableRow>& rows) {
    std::vector<control::NodeView> table;
    table.reserve(rows.size());
    for (const auto& row : rows) table.push_back({row.node, row.host, row.first_rank, row.slots});
    answer(encoded(std::move(table)));
  });
}

// The coordinator decides, and its answer is the reply.
void AgentLoop::ask_all_for_restart(std::function<void(std::string)> reply) {
  const auto late = [] {
    return control::refusal("conflict",
                            "the coordinator of its nodes gives no answer: look whether a restart "
                            "follows, else try again");
  };
  const auto answer = reply_within(io_, kRestartPatience, late, std::move(reply));
  restart_answer_ = [answer](const std::string& why_not) {
    answer(why_not.empty() ? control::done() : control::refusal("conflict", why_not));
  };
  handle(RestartAsked{clock_now()});
  restart_answer_ = nullptr;
  check_emptied();
}

control::JobView AgentLoop::view(const control::Status& wanted) const {
  const auto now = clock_now();
  control::JobView seen;
  seen.name = job_name(plan_);
  seen.id = job_id_;
  seen.state = control::state_of(group_);
  seen.round = group_.round;
  seen.ledger = group_.ledger;
  seen.max_restarts = max_restarts_;
  seen.restart_reason = restart_reason_;
  seen.world_size = place_ ? place_->world_size : plan_.world_size;
  seen.node = job_ ? job_->node_name() : host_name();
  if (place_) seen.node_rank = place_->node_rank;
  seen.nodes = place_ ? place_->nodes : 1;
  seen.guardian = guardian_.pid;
  seen.agent = ::getpid();
  if (run_folder_.holds_logs()) seen.log_folder = run_folder_.path();
  seen.seconds = seconds_of(began_, now);
  seen.goodput = watch_.goodput(now);
  const auto words = std::min(plan_.command.size(), kShownWords);
  seen.command.assign(plan_.command.begin(),
                      plan_.command.begin() + static_cast<std::ptrdiff_t>(words));
  const auto& records = workers_.records();
  seen.workers.reserve(records.size());
  for (const auto& record : records) {
    control::WorkerView worker{record.rank, record.local_rank, record.pid, record.status, 0, {},
                               {}};
    if (wanted.last_lines) worker.last_line = output_.last_line(record.local_rank);
    worker.progress = progress_of(record);
    const bool has_begun = record.started != Instant{};
    if (has_begun) worker.seconds = seconds_of(record.started, record.status ? record.ended : now);
    if (!record.status && record.pid != 0 && seen.workers.size() < kMeasuredWorkers)
      worker.usage = usage_of(record.pid);
    seen.workers.push_back(std::move(worker));
  }
  return seen;
}

void AgentLoop::add_gpus(control::JobView& seen) {
  const auto& samples = gpus_.ask();
  for (const auto& one : samples)
    seen.gpus.push_back({one.index, one.percent, one.memory_used, one.memory_total});
  std::vector<std::int64_t> pids(seen.workers.size());
  for (std::size_t i = 0; i < pids.size(); ++i)
    pids[i] = seen.workers[i].status ? 0 : seen.workers[i].pid;
  const auto used = gpu::gpus_of_workers(samples, pids, [](std::int64_t pid) {
    return std::int64_t{::getpgid(static_cast<pid_t>(pid))};
  });
  for (std::size_t i = 0; i < used.size(); ++i) seen.workers[i].gpus = used[i];
}

std::optional<control::WorkerView::Progress> AgentLoop::progress_of(
    const WorkerRecord& record) const {
  const auto beat = watch_.beat(record.local_rank);
  if (!beat || beat->time_ns == 0) return std::nullopt;
  const auto now = heartbeat::coarse_now_ns();
  const auto silent_ns = now > beat->time_ns ? now - beat->time_ns : 0;
  return control::WorkerView::Progress{beat->step, static_cast<double>(silent_ns) / 1e9,
                                       watch_.steps_per_second(record.local_rank), beat->section};
}

void AgentLoop::act(const TellRestartAsked& a) { messages_.restart_asked(a); }

}  // namespace acc::agent
