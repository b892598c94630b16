#include "launcher/ctl/places.hpp"

#include "common/daemon_places.hpp"
#include "common/text.hpp"
#include "common/user_name.hpp"
#include "launcher/ctl/wire.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

std::vector<ControlFolder> places_of_user() {
  return control_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
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

/// The job whose agent listens at `socket`; nothing: it ended, and its socket is removed.
std::optional<JobRow> job_at(const std::string& socket, std::int64_t now_ms) {
  struct stat info {};
  if (::lstat(socket.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  const auto user = user_name(info.st_uid);
  const auto status = ask_agent(socket, R"({"do":"status"})", kListPatience);
  if (status) return job_of_agent(*status, socket, user, now_ms);
  // An agent gives its socket this name only when it listens already.
  const bool is_dead = is_nothing_listening(status.error());
  if (is_dead && info.st_uid == ::geteuid()) ::unlink(socket.c_str());
  if (status.error().code == Errc::timed_out) return silent_job(socket, user);
  return std::nullopt;
}

// The later one says more.
enum class Missing { no_socket, runs_no_longer, gives_no_list };

Missing missing_by(const Error& error) {
  if (error.code == Errc::not_found) return Missing::no_socket;
  return is_nothing_listening(error) ? Missing::runs_no_longer : Missing::gives_no_list;
}

}  // namespace

Services find_services(const std::string& flag) {
  if (!flag.empty()) return {{flag}, true};
  // In a job it names the worker's socket, an abstract one.
  if (const auto named = variable("ACC_AGENT_SOCKET"); !named.empty() && named[0] != '@')
    return {{named}, true};
  Services services;
  for (const auto& place : user_daemon_places(user_folders(), ::geteuid())) {
    if (!place.is_trusted) continue;  // such a one has to be named
    services.sockets.push_back(place.socket);
    if (place.is_of_state_folder) services.in_homes.push_back(place.socket);
  }
  services.sockets.emplace_back("/run/acc/agent.sock");
  return services;
}

PlainJobs jobs_of_agents(const std::vector<ControlFolder>& places, std::int64_t now_ms) {
  PlainJobs found;
  for (const auto& place : places) {
    // Root may look at another user's by naming the folder; its agents answer root.
    const auto folder = open_control_folder(place, false);
    const bool is_foreign = !folder && folder.error().code == Errc::not_permitted;
    const bool is_missing = !folder && folder.error().errnum == ENOENT;
    const bool may_look = is_foreign && !place.is_base_shared && ::geteuid() == 0;
    if (!folder && !is_missing && !may_look) {  // a link, or no folder
      found.unseen += (found.unseen.empty() ? "" : "; ") + folder.error().what;
      continue;
    }
    for (const auto& socket : sockets_in(place.path())) {
      if (auto job = job_at(socket, now_ms)) found.jobs.push_back(std::move(*job));
    }
  }
  if (found.unseen.empty() && variable("XDG_RUNTIME_DIR").empty())
    found.unseen =
        "XDG_RUNTIME_DIR isn't set here: jobs that were started with one of their own "
        "aren't seen";
  return found;
}

bool is_away(const Services& services, const std::string& socket, const Error& error) {
  const bool is_in_home = std::ranges::find(services.in_homes, socket) != services.in_homes.end();
  return error.code == Errc::not_found || (is_in_home && is_nothing_listening(error));
}

AllJobs find_jobs(const Services& services, std::int64_t now_ms, const std::string& at) {
  AllJobs all;
  for (const auto& socket : services.sockets) {
    const auto answer = ask_service(socket, {.target = at + "/v1/jobs"});
    if (!answer) {
      Error error = answer.error();
      if (is_away(services, socket, error)) error.code = Errc::not_found;
      if (missing_by(error) == Missing::runs_no_longer) all.dead.push_back(socket);
      if (!all.error || missing_by(error) > missing_by(*all.error)) all.error = std::move(error);
      continue;
    }
    auto jobs = jobs_of_service(answer->body, socket);
    if (answer->status != 200 || !jobs) {
      const auto why = error_of(answer->body);
      const bool is_silent = is_unanswered(answer->status, answer->body);
      all.error = Error{is_silent ? Errc::unavailable : Errc::not_permitted,
                        why.empty() ? "'" + socket + "' is no acc-agent" : why};
      continue;
    }
    all.answered.push_back(socket);
    for (auto& job : *jobs) {
      job.at = at;
      all.jobs.push_back(std::move(job));
    }
  }
  if (!at.empty()) return all;
  auto plain = jobs_of_agents(places_of_user(), now_ms);
  for (auto& job : plain.jobs) all.jobs.push_back(std::move(job));
  all.unseen = std::move(plain.unseen);
  return all;
}

std::string unanswered(const Services& services, const Error& error) {
  const bool is_down = error.code == Errc::not_found || is_nothing_listening(error);
  if (!is_down) return error.what;
  return "no acc-agent answers (" + error.what + "): " +
         (services.is_named ? "is that the socket of one that runs (--socket, ACC_AGENT_SOCKET)?"
                            : std::string{kStartsIt});
}

std::string left_by_dead(const std::string& socket) {
  return "the acc-agent of " + in_quotes(socket, 200) +
         " doesn't run any more: start it again, or remove that socket";
}

bool is_service_missed(const Services& services, const AllJobs& all, const std::string& at) {
  if (!all.error) return false;
  const auto missing = missing_by(*all.error);
  if (missing == Missing::gives_no_list) return true;
  return all.answered.empty() &&
         (missing == Missing::runs_no_longer || services.is_named || !at.empty());
}

}  // namespace acc::ctl
