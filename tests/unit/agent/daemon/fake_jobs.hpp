#pragma once

#include "agent/daemon/jobs.hpp"
#include "agent/daemon/user_file.hpp"

#include <boost/asio/awaitable.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace acc::agent::daemon {

/// The job service in memory: jobs run when a test says so, and write where a test writes.
class FakeJobs : public Jobs {
 public:
  template <class T>
  using Wait = boost::asio::awaitable<Result<T>>;

  explicit FakeJobs(std::string folder) : folder_{std::move(folder)} {}

  Wait<JobId> submit(Principal who, Submission submission) override {
    if (submission.slots > facts.slots) co_return Error{Errc::exhausted, "8 slots, all taken by a"};
    if (!submission.user.empty() && who.uid != 0)
      co_return Error{Errc::not_permitted, "only root may submit for others"};
    const auto id = submission.name + "-" + std::to_string(jobs.size() + 1);
    add(id, who.uid, std::move(submission));
    co_return id;
  }
  Wait<CheckedSubmission> check(Principal, Submission submission) override {
    if (submission.slots > facts.slots) co_return Error{Errc::exhausted, "8 slots, all taken by a"};
    co_return CheckedSubmission{"alice", facts.version, facts.slots_free, 2};
  }
  Wait<std::string> stop(Principal who, JobId id, std::optional<std::uint32_t> grace) override {
    const auto done = change(who, id, "stop " + std::to_string(grace.value_or(999)));
    if (done.has_error()) co_return done.error();
    co_return stop_warning;
  }
  Wait<void> signal(Principal who, JobId id, int signo) override {
    co_return change(who, id, "signal " + std::to_string(signo));
  }
  Wait<void> restart(Principal who, JobId id) override { co_return change(who, id, "restart"); }
  Wait<void> remove(Principal who, JobId id) override { co_return change(who, id, "remove"); }
  Wait<std::string> drain(Principal, std::string reason) override {
    facts.drained = std::move(reason);
    co_return drain_warning;
  }
  Wait<void> undrain(Principal) override {
    facts.drained.clear();
    co_return Result<void>{};
  }
  Wait<std::string> control(Principal, JobId, std::string) override {
    if (live.empty()) co_return Error{Errc::unavailable, "no control socket"};
    co_return live;
  }

  [[nodiscard]] std::vector<JobRecord> list(Principal who) const override {
    std::vector<JobRecord> seen;
    for (const auto& [id, job] : jobs) {
      if (sees(who, job.uid)) seen.push_back(job);
    }
    return seen;
  }
  [[nodiscard]] Result<JobRecord> find(Principal who, const JobId& id) const override {
    const auto found = jobs.find(id);
    if (found == jobs.end() || !sees(who, found->second.uid))
      return Error{Errc::not_found, "there is no job '" + id + "'"};
    return found->second;
  }
  [[nodiscard]] NodeFacts node() const override { return facts; }
  [[nodiscard]] Result<UniqueFd> open_output(Principal, const JobId& id,
                                             const OutputChoice& choice) const override {
    if (choice.local_rank)
      return open_rank_log(open_user_folder(id).get(), newest_, *choice.local_rank,
                           choice.is_stderr, ::geteuid());
    const std::string file = choice.is_events
                                 ? path(id, false) + (choice.is_previous ? ".events.1" : ".events")
                                 : path(id, choice.is_stderr);
    UniqueFd fd{::open(file.c_str(), (is_unreadable ? O_WRONLY : O_RDONLY) | O_CLOEXEC)};
    if (!fd) return Error{Errc::not_found, "nothing yet"};
    return fd;
  }
  [[nodiscard]] Result<RankLog> find_rank_log(Principal, const JobId& id,
                                              const RankLogChoice& choice) const override {
    return daemon::find_rank_log(open_user_folder(id).get(), newest_, choice, ::geteuid());
  }
  [[nodiscard]] std::vector<UniqueFd> open_log_folders(Principal, const JobId& id) const override {
    return daemon::open_log_folders(open_user_folder(id).get());
  }
  [[nodiscard]] Result<std::string> report(Principal, const JobId&) const override {
    if (on_report) on_report();
    if (kept_report.empty()) return Error{Errc::not_found, "no report"};
    return kept_report;
  }
  [[nodiscard]] std::vector<JobEvent> events_after(Principal who,
                                                   std::uint64_t number) const override {
    std::vector<JobEvent> seen;
    for (const auto& event : events) {
      if (event.number > number && sees(who, event.uid)) seen.push_back(event);
    }
    return seen;
  }
  [[nodiscard]] Subscription on_event(std::function<void(const JobEvent&)> told) override {
    auto kept = std::make_shared<std::function<void(const JobEvent&)>>(std::move(told));
    subscribers_.push_back(kept);
    return kept;
  }

  // ---- for the test ----
  void add(const JobId& id, uid_t uid, Submission submission) {
    JobRecord job;
    job.id = id;
    job.uid = uid;
    job.submission = SharedSubmission{std::move(submission)};
    job.state = JobState::running;
    jobs[id] = std::move(job);
    tell(id, uid, "submitted");
  }
  void end(const JobId& id, int exit_code) {
    auto& job = jobs.at(id);
    job.state = exit_code == 0 ? JobState::succeeded : JobState::failed;
    job.exit_code = exit_code;
    tell(id, job.uid, "ended");
  }
  void tell(const JobId& id, uid_t uid, const std::string& kind) {
    events.push_back({events.size() + 1, 1000, id, uid, kind, kind + " " + id});
    for (const auto& one : std::vector(subscribers_)) {
      if (const auto told = one.lock()) (*told)(events.back());
    }
    std::erase_if(subscribers_, [](const auto& one) { return one.expired(); });
  }
  [[nodiscard]] std::string path(const JobId& id, bool is_stderr) const {
    return folder_ + "/" + id + (is_stderr ? ".err" : ".out");
  }
  void write(const JobId& id, bool is_stderr, std::string_view text) const {
    append(path(id, is_stderr), text);
  }
  /// The job's logs of ranks, as acc-launch lays them out.
  [[nodiscard]] std::filesystem::path logs(const JobId& id) const {
    return folder_ + "/" + id + ".user/logs";
  }
  /// Each begins a moment after the one before.
  std::filesystem::path make_attempt(const JobId& id, const std::string& run, int attempt) {
    auto folder = logs(id) / run / ("attempt_" + std::to_string(attempt));
    if (std::filesystem::create_directories(folder))
      std::filesystem::last_write_time(folder, time_ += std::chrono::milliseconds{10});
    return folder;
  }
  /// To the log of rank 0; the run becomes the latest.
  void write_rank(const JobId& id, const std::string& run, int attempt, std::string_view text,
                  bool is_stderr = false) {
    const auto folder = make_attempt(id, run, attempt);
    const auto time = std::filesystem::last_write_time(folder);
    std::filesystem::create_directory(folder / "0");
    std::filesystem::last_write_time(folder, time);
    std::filesystem::remove(logs(id) / "latest");
    std::filesystem::create_directory_symlink(run, logs(id) / "latest");
    append(folder / (is_stderr ? "0/stderr.log" : "0/stdout.log"), text);
  }
  static void append(const std::string& path, std::string_view text) {
    const UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    while (!text.empty()) {
      const auto n = ::write(fd.get(), text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  [[nodiscard]] std::size_t subscribers() const { return subscribers_.size(); }

  std::map<JobId, JobRecord> jobs;
  std::vector<JobEvent> events;
  std::vector<std::string> calls;
  NodeFacts facts{"node-a", "0.1.0", 8, 8, {0, 1}, {0, 1}, ""};
  std::string live;
  std::string drain_warning;
  std::string stop_warning;
  std::string kept_report;
  std::function<void()> on_report{};  ///< called where a report is read
  bool is_unreadable = false;         ///< reading an output fails

 private:
  static bool sees(Principal who, uid_t uid) { return who.uid == 0 || who.uid == uid; }
  Result<void> change(Principal who, const JobId& id, const std::string& what) {
    const auto found = find(who, id);
    if (!found) return found.error();
    if (what == "remove" && !found->exit_code) return Error{Errc::bad_usage, "it runs: stop it"};
    if (what == "remove") jobs.erase(id);
    calls.push_back(what);
    return {};
  }

  [[nodiscard]] UniqueFd open_user_folder(const JobId& id) const {
    const auto folder = folder_ + "/" + id + ".user";
    std::filesystem::create_directory(folder);
    return UniqueFd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  }

  std::string folder_;
  std::filesystem::file_time_type time_ =
      std::filesystem::file_time_type::clock::now() - std::chrono::hours{1};
  mutable NewestAttempts newest_;
  std::vector<std::weak_ptr<std::function<void(const JobEvent&)>>> subscribers_;
};

}  // namespace acc::agent::daemon
