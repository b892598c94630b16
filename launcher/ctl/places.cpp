#include "launcher/ctl/places.hpp"

#include "launcher/ctl/wire.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace acc::ctl {

namespace {

// A suspended job gives no answer: the list must not wait for it for long.
constexpr Millis kListPatience{1'000};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string own_name() {
  const auto* user = ::getpwuid(::geteuid());
  return user != nullptr ? user->pw_name : std::to_string(::geteuid());
}

std::vector<std::string> sockets_in(const std::string& folder) {
  std::vector<std::string> found;
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return found;
  constexpr std::size_t kMost = 10'000;
  while (const auto* entry = ::readdir(open)) {
    const std::string name{static_cast<const char*>(entry->d_name)};
    if (name.ends_with(".sock") && !name.starts_with('.') && found.size() < kMost)
      found.push_back(folder + "/" + name);
  }
  ::closedir(open);
  std::ranges::sort(found);
  return found;
}

}  // namespace

Services find_services(const std::string& flag) {
  if (!flag.empty()) return {{flag}, true};
  // In a job it names the worker's socket, an abstract one.
  if (const auto named = variable("ACC_AGENT_SOCKET"); !named.empty() && named[0] != '@')
    return {{named}, true};
  Services services;
  if (const auto runtime = variable("XDG_RUNTIME_DIR"); !runtime.empty())
    services.sockets.push_back(runtime + "/acc/agent.sock");
  services.sockets.emplace_back("/run/acc/agent.sock");
  return services;
}

std::vector<JobRow> jobs_of_agents(std::int64_t now_ms) {
  std::vector<JobRow> jobs;
  const auto runtime = variable("XDG_RUNTIME_DIR");
  if (runtime.empty()) return jobs;
  const auto user = own_name();
  for (const auto& socket : sockets_in(runtime + "/acc/jobs")) {
    const auto status = ask_agent(socket, R"({"do":"status"})", kListPatience);
    struct stat info {};
    // An agent gives its socket this name only when it listens already.
    const bool is_dead = !status && status.error().code == Errc::unavailable &&
                         status.error().what.ends_with("nothing listens there");
    if (is_dead && ::lstat(socket.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) &&
        info.st_uid == ::geteuid())
      ::unlink(socket.c_str());
    if (!status && status.error().code == Errc::timed_out) jobs.push_back(silent_job(socket, user));
    if (!status) continue;
    if (auto job = job_of_agent(*status, socket, user, now_ms)) jobs.push_back(std::move(*job));
  }
  return jobs;
}

AllJobs find_jobs(const Services& services, std::int64_t now_ms, const std::string& at) {
  AllJobs all;
  for (const auto& socket : services.sockets) {
    const auto answer = ask_service(socket, {.target = at + "/v1/jobs"});
    if (!answer) {
      if (!all.error) all.error = answer.error();
      continue;
    }
    auto jobs = jobs_of_service(answer->body, socket);
    if (answer->status != 200 || !jobs) {
      const auto why = error_of(answer->body);
      all.error =
          Error{Errc::not_permitted, why.empty() ? "'" + socket + "' is no acc-agent" : why};
      continue;
    }
    all.answered.push_back(socket);
    for (auto& job : *jobs) {
      job.at = at;
      all.jobs.push_back(std::move(job));
    }
  }
  if (!at.empty()) return all;
  for (auto& job : jobs_of_agents(now_ms)) all.jobs.push_back(std::move(job));
  return all;
}

}  // namespace acc::ctl
