#include "agent/daemon/launcher_trials.hpp"

#include "agent/daemon/descriptor_waits.hpp"
#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/job_processes.hpp"
#include "agent/job_folder_notes.hpp"
#include "common/exit_status.hpp"
#include "common/host_name.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr auto kTrialLimit = 20s;

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
                                    const Job& job) {
  const std::string user_folder = folder.user_path(job.id());
  GuardianRequest request;
  request.launcher = settings.launcher;
  request.words = guardian_words(job.stored.submission->words, user_folder);
  request.user = *job.user;
  request.environment = guardian_environment(*job.user, *job.stored.submission, user_folder,
                                             job.stored.gpus, settings.lang);
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
    LoginUser user, std::vector<std::string> words) const {
  Submission nowhere;
  nowhere.working_directory = "/";
  co_return co_await try_launcher(std::move(user), std::move(nowhere), std::move(words));
}

awaitable<Result<LauncherTrials::Trial>> LauncherTrials::try_launcher(
    LoginUser user, Submission submission, std::vector<std::string> words) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) co_return system_error(errno, "pipe");
  UniqueFd output{ends[0]};
  UniqueFd write_end{ends[1]};
  GuardianRequest request;
  request.launcher = settings_.launcher;
  request.words = std::move(words);
  request.environment = guardian_environment(user, submission, "", {}, settings_.lang);
  std::erase_if(request.environment, [](const auto& one) {
    return one.starts_with(std::string{kJobFolderVariable} + '=');
  });
  auto secret = secret_for(settings_, user, submission);
  if (secret.has_error()) co_return secret.error();
  request.secret = std::move(*secret);
  request.working_directory = submission.working_directory;
  request.user = std::move(user);
  request.output_fd = write_end.get();
  auto held = HeldGuardian::fork(request);
  write_end.reset();
  if (held.has_error()) co_return held.error();
  held->open_gate();
  const pid_t pid = held->pid();
  const UniqueFd pidfd = held->take_pidfd();
  constexpr std::size_t kMost = std::size_t{64} << 10U;
  auto status = co_await read_to_end(held->take_status(), 64, kTrialLimit, "set-up");
  auto text =
      co_await read_to_end(std::move(output), kMost, kTrialLimit, "it didn't end within 20 s");
  UniqueFd copy{::dup(pidfd.get())};
  if (!co_await await_readable(std::move(copy), 2s)) {
    send_to(pidfd, SIGKILL);
    UniqueFd again{::dup(pidfd.get())};
    co_await await_readable(std::move(again), 2s);
  }
  int wait_status = 0;
  if (::waitpid(pid, &wait_status, WNOHANG) != pid)
    co_return Error{Errc::timed_out, "a trial of the job can't be ended"};
  if (status.has_value() && !status->empty())
    co_return Error{Errc::bad_usage, HeldGuardian::explain(request, *status).reason};
  if (text.has_error()) co_return text.error();
  co_return Trial{shell_code(exit_status_from_wait(wait_status)), std::move(*text)};
}

}  // namespace acc::agent::daemon
