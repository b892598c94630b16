#include "agent/daemon/launcher_trials.hpp"

#include "agent/daemon/descriptor_waits.hpp"
#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/job_processes.hpp"
#include "agent/daemon/trial_processes.hpp"
#include "agent/job_folder_notes.hpp"
#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>
#include <variant>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr auto kTrialLimit = 20s;
/// For earlier trials of the user. With the trial's own time it is less than a request may take.
constexpr auto kTurnLimit = 5s;
/// Of what a trial writes. A plan holds the words once, at most six bytes for one (\u001b): those
/// of the longest submission take 1.6 MiB.
constexpr std::size_t kMostOutput = std::size_t{4} << 20U;

Result<rendezvous::SecretBytes> secret_for(const ServiceSettings& settings, const LoginUser& user,
                                           const Submission& submission) {
  if (!submission.launch) return rendezvous::SecretBytes{};
  if (!settings.launch_secret)
    return Error{Errc::unavailable, "launch: " + host_name() + " has no cluster secret"};
  Launch launch = *submission.launch;
  return settings.launch_secret(user.name, launch);
}

}  // namespace

Result<GuardianRequest> request_for(const ServiceSettings& settings, const StateFolder& folder,
                                    const Job& job, const std::optional<GpuNumbers>& gpus) {
  const std::string user_folder = folder.user_path(job.id());
  GuardianRequest request;
  request.launcher = settings.launcher;
  request.words = guardian_words(job.stored.submission->words, user_folder);
  request.user = *job.user;
  request.environment = guardian_environment(*job.user, *job.stored.submission, user_folder, gpus,
                                             settings.lang);
  request.umask = job.stored.submission->umask;
  request.working_directory = job.stored.submission->working_directory;
  request.user_folder = user_folder;
  request.nofile = settings.nofile;
  auto secret = secret_for(settings, *job.user, *job.stored.submission);
  if (!secret) return secret.error();
  request.secret = std::move(*secret);
  return request;
}

awaitable<Result<LauncherTrials::Trial>> LauncherTrials::try_launcher(
    LoginUser user, std::vector<std::string> words) {
  Submission nowhere;
  nowhere.working_directory = "/";
  // A job file's: one after the other, and not held up by what the user submits.
  co_return co_await run(std::move(user), std::move(nowhere), std::move(words), nullptr, nullptr);
}

awaitable<Result<LauncherTrials::Trial>> LauncherTrials::try_launcher(
    LoginUser user, Submission submission, std::vector<std::string> words,
    std::shared_ptr<CallerLink> caller) {
  auto turn = co_await turns_.wait(user.uid, caller, kTurnLimit);
  if (turn.has_error()) co_return turn.error();
  co_return co_await run(std::move(user), std::move(submission), std::move(words),
                         std::move(caller), std::move(*turn));
}

namespace {

GuardianRequest trial_request(const ServiceSettings& settings, const LoginUser& user,
                              const Submission& submission, std::vector<std::string> words) {
  GuardianRequest request;
  request.launcher = settings.launcher;
  request.words = std::move(words);
  request.environment = guardian_environment(user, submission, "", std::nullopt, settings.lang);
  std::erase_if(request.environment, [](const auto& one) {
    return one.starts_with(std::string{kJobFolderVariable} + '=');
  });
  request.working_directory = submission.working_directory;
  request.nofile = settings.nofile;
  request.user = user;
  return request;
}

/// A process whose end is waited for, by its parent.
struct TrialChild {
  pid_t pid = 0;
  UniqueFd pidfd;
  int wait_status = 0;

  awaitable<bool> ended(std::chrono::milliseconds limit) {
    UniqueFd copy{::dup(pidfd.get())};
    co_await await_readable(std::move(copy), limit);
    co_return ::waitpid(pid, &wait_status, WNOHANG) == pid;
  }
};

/// What a trial writes to blocks, as any pipe of a shell does: a program that meets a full one that
/// doesn't gives up in the middle.
struct OutputPipe {
  UniqueFd read_end;
  UniqueFd write_end;

  static Result<OutputPipe> open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "pipe");
    OutputPipe pipe{UniqueFd{ends[0]}, UniqueFd{ends[1]}};
    if (::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK) != 0) return system_error(errno, "pipe");
    return pipe;
  }
};

/// Of one that has ended.
Result<LauncherTrials::Trial> outcome(const ExitStatus& status, Result<std::string> text) {
  if (text.has_error() && text.error().code == Errc::timed_out)
    return Error{Errc::timed_out, "acc-launch didn't end its check of the job within 20 s"};
  if (text.has_error()) return text.error();
  if (std::holds_alternative<Signaled>(status))
    // Not `unavailable`: acc-launch --hosts --wait would wait for a host that always ends it so.
    return Error{Errc::system, "acc-launch was " + describe(status) + ", as it checked the job"};
  return LauncherTrials::Trial{shell_code(status), std::move(*text)};
}

// The kernel waits for a disk or a server of files: the user's turn is taken until it has ended.
awaitable<void> outlast(TrialChild child, TrialProcesses processes, TrialTurns::Turn turn) {
  for (bool has_ended = false; !has_ended;) has_ended = co_await child.ended(60s);
  for (bool is_empty = false; !is_empty;) is_empty = co_await processes.end(60s);
  turn.reset();
}

}  // namespace

awaitable<Result<LauncherTrials::Trial>> LauncherTrials::run(LoginUser user, Submission submission,
                                                             std::vector<std::string> words,
                                                             std::shared_ptr<CallerLink> caller,
                                                             TrialTurns::Turn turn) {
  auto output = OutputPipe::open();
  if (output.has_error()) co_return output.error();
  auto request = trial_request(settings_, user, submission, std::move(words));
  auto secret = secret_for(settings_, user, submission);
  if (secret.has_error()) co_return secret.error();
  request.secret = std::move(*secret);
  TrialProcesses processes{jobs_group_, user.uid, pool_};
  processes.enter(request);
  request.output_fd = output->write_end.get();
  auto held = HeldGuardian::fork(request);
  output->write_end.reset();
  processes.look_after_fork();
  if (held.has_error()) co_return held.error();
  held->open_gate();
  TrialChild child{held->pid(), held->take_pidfd()};
  if (caller)
    caller->when_closed([&] {
      send_to(child.pidfd, SIGKILL);
      processes.kill_soon();
    });
  const auto deadline = std::chrono::steady_clock::now() + kTrialLimit;
  auto status = co_await read_to_end(held->take_status(), 64, kTrialLimit, "set-up");
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  auto text = co_await read_to_end(std::move(output->read_end), kMostOutput, std::max(left, 1ms),
                                   "what acc-launch says of the job");
  bool is_ended = text.has_value() && co_await child.ended(2s);
  if (caller) caller->when_closed(nullptr);
  send_to(child.pidfd, SIGKILL);
  if (!is_ended) is_ended = co_await child.ended(2s);
  const bool is_empty = co_await processes.end(2s);
  const int wait_status = child.wait_status;
  if (!is_ended || !is_empty) {
    log::warn("trial_left", {{"user", request.user.name}, {"pid", child.pid}});
    boost::asio::co_spawn(co_await boost::asio::this_coro::executor,
                          outlast(std::move(child), std::move(processes), std::move(turn)),
                          [](const std::exception_ptr& failed) {
                            if (failed) log::error("trial_left", {{"why", "an exception"}});
                          });
  }
  if (caller && caller->is_closed())
    co_return Error{Errc::unavailable, "the caller closed its connection"};
  if (!is_ended) co_return Error{Errc::timed_out, "a trial of the job can't be ended"};
  if (status.has_value() && !status->empty())
    co_return Error{Errc::bad_usage, HeldGuardian::explain(request, *status).reason};
  co_return outcome(exit_status_from_wait(wait_status), std::move(text));
}

}  // namespace acc::agent::daemon
