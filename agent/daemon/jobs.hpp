#pragma once

#include "agent/daemon/caller_link.hpp"
#include "agent/daemon/log_place.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/awaitable.hpp>

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What the daemon's API can do with jobs: the line between the HTTP handlers and the job service.
/// docs/decisions/0034-daemon.md has the whole.
namespace acc::agent::daemon {

using JobId = std::string;  ///< "train-k3jd82": [a-z0-9][a-z0-9._-]*, checked on arrival

/// Who asks, from the kernel (SO_PEERCRED), or a user that another daemon vouches for by name. Sees
/// and steers the jobs of its own uid; the user that the daemon runs as, and root, see all.
struct Principal {
  uid_t uid = 0;
  gid_t gid = 0;
  /// The key of the cluster's secret by which the other daemon proved itself; empty: a caller of
  /// this node.
  std::string key_id{};
  bool has_account = true;  ///< false: a subordinate uid, for instance
  bool has_token = false;   ///< it isn't the kernel that tells, but a token of that user
  std::shared_ptr<CallerLink> caller{};  ///< of this request; null: it waits until it is answered
  [[nodiscard]] bool is_of_another_node() const { return !key_id.empty(); }
  /// Whose share of connections, memory and questions it uses: all without an account have one.
  [[nodiscard]] uid_t quota_owner() const { return has_account ? uid : static_cast<uid_t>(-1); }
};

enum class JobState { waiting, running, stopping, succeeded, failed, stopped };

/// When an ended guardian is started again. acc-launch restarts workers by its own policy; this one
/// counts for the whole of it: a killed guardian, a reboot.
enum class RestartRule {
  no,
  on_failure,  ///< an exit code other than 0, or a lost guardian; never after a stop
  always,      ///< also after success; never after a stop
};

/// A node's part of a job that one command runs on several nodes, each with a daemon of its own.
struct Launch {
  std::string id;  ///< the same on all nodes: as JobId
  std::uint32_t nodes = 1;
  std::uint32_t node_rank = 0;
  /// Of the key that the job's secret is derived from; empty: the first of the secret file. The
  /// daemon that all parts come from uses one key for all.
  std::string key_id{};
  std::string version{};  ///< of the daemon that passed it on; not recorded
};

struct Submission {
  std::string name;                        ///< empty: "job". [a-z0-9][a-z0-9._-]{0,63}
  std::vector<std::string> words;          ///< the command line behind `acc-launch`
  std::string working_directory;           ///< absolute, as the user sees it
  std::map<std::string, std::string> env;  ///< added to the login environment of the user
  std::string user;                        ///< only for root: run as; empty: who asks
  mode_t umask = 022;
  std::uint32_t slots = 1;
  bool names_slots = true;  ///< false: one for each worker that `words` start here; not recorded
  std::uint32_t gpus = 0;
  bool wait = false;  ///< for free slots; false: refuse when the node is full
  RestartRule restart = RestartRule::no;
  std::uint32_t max_starts_again = 0;  ///< 0 with a rule: without limit
  std::optional<Launch> launch{};
  bool only_checks = false;  ///< `check`: says whether it could run here, and keeps nothing
};

/// A submission that a job and its records share: it may be large, and lists have all of them.
class SharedSubmission {
 public:
  SharedSubmission() : value_{std::make_shared<Submission>()} {}
  explicit SharedSubmission(Submission value)
      : value_{std::make_shared<Submission>(std::move(value))} {}
  [[nodiscard]] const Submission& operator*() const { return *value_; }
  [[nodiscard]] const Submission* operator->() const { return value_.get(); }
  /// To change it: records that were made before keep theirs.
  [[nodiscard]] Submission& edit() {
    if (value_.use_count() > 1) value_ = std::make_shared<Submission>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<Submission> value_;
};

/// The answer to a submission that only checks.
struct CheckedSubmission {
  std::string user;
  std::string version;
  std::uint32_t slots_free = 0;
  std::uint32_t gpus_free = 0;
  std::string daemon{};  ///< this one and no other, under whatever name it was reached
};

struct JobRecord {
  JobId id;
  uid_t uid = 0;
  std::string user;
  SharedSubmission submission;
  JobState state = JobState::waiting;
  std::optional<int> exit_code;
  std::string reason;               ///< in words: why it waits, failed or was refused; may be empty
  std::int64_t submitted_ms = 0;    ///< wall clock, since the epoch; for printing only
  std::int64_t started_ms = 0;      ///< of the last start; 0: never
  std::int64_t ended_ms = 0;        ///< 0: not yet
  pid_t pid = 0;                    ///< of the guardian; 0: none
  std::uint32_t starts = 0;         ///< how often a guardian was started
  std::vector<std::uint32_t> gpus;  ///< given to it
  std::string program{};  ///< what a job of jobs.d executes, whose words name a file; else empty
};

struct NodeFacts {
  std::string name, version;
  std::uint32_t slots = 0, slots_free = 0;
  std::vector<std::uint32_t> gpus, gpus_free;
  std::string drained;  ///< the reason; empty: takes jobs
  std::string identity{};  ///< of this daemon and no other
};

/// A state change of a job, numbered for ever within a state folder's life.
struct JobEvent {
  std::uint64_t number = 0;
  std::int64_t time_ms = 0;
  JobId job;
  uid_t uid = 0;
  std::string kind;  ///< submitted started stopping ended restarted removed, drained undrained
  std::string text;
};

/// Which output of a job.
struct OutputChoice {
  bool is_stderr = false;
  std::optional<std::uint32_t> local_rank;  ///< one rank's log file in place of acc-launch's stream
  bool is_events = false;    ///< what acc-launch wrote with --events, in place of any output
  bool is_previous = false;  ///< of events: the file before the one that is written now
};

/// Failures are acc::Error: not_found (or another user's), not_permitted, bad_usage, exhausted
/// (slots; too many jobs), unavailable (drained, shutting down), system. All calls come from the
/// daemon's loop.
class Jobs {
 public:
  virtual ~Jobs() = default;
  virtual boost::asio::awaitable<Result<JobId>> submit(Principal who, Submission submission) = 0;
  /// All that can be known without a start; the complaint is the one that submit() would have.
  virtual boost::asio::awaitable<Result<CheckedSubmission>> check(Principal who,
                                                                  Submission submission) = 0;
  /// @return a warning; empty: a restart of the daemon doesn't change it
  virtual boost::asio::awaitable<Result<std::string>> stop(
      Principal who, JobId id, std::optional<std::uint32_t> grace_s) = 0;
  virtual boost::asio::awaitable<Result<void>> signal(Principal who, JobId id, int signo) = 0;
  /// Of a running job: all its workers anew (one round more). Of an ended one: a new guardian.
  virtual boost::asio::awaitable<Result<void>> restart(Principal who, JobId id) = 0;
  /// Of an ended job.
  virtual boost::asio::awaitable<Result<void>> remove(Principal who, JobId id) = 0;
  /// @return a warning; empty: a restart of the daemon doesn't change it
  virtual boost::asio::awaitable<Result<std::string>> drain(Principal who, std::string reason) = 0;
  virtual boost::asio::awaitable<Result<void>> undrain(Principal who) = 0;
  /// The reply of the job's agent to one request line of the control socket, within 2 s;
  /// to control::kStacksRequest within 15 s.
  virtual boost::asio::awaitable<Result<std::string>> control(Principal who, JobId id,
                                                              std::string request) = 0;

  [[nodiscard]] virtual std::vector<JobRecord> list(Principal who) const = 0;
  [[nodiscard]] virtual Result<JobRecord> find(Principal who, const JobId& id) const = 0;
  [[nodiscard]] virtual NodeFacts node() const = 0;
  /// A regular file of the job's owner, opened for reading; not_found: nothing was written yet.
  [[nodiscard]] virtual Result<UniqueFd> open_output(Principal who, const JobId& id,
                                                     const OutputChoice& choice) const = 0;
  /// The log files of one rank, one after the other.
  [[nodiscard]] virtual Result<RankLog> find_rank_log(Principal who, const JobId& id,
                                                      const RankLogChoice& choice) const = 0;
  /// In which folders a rank's next log file shows first: of the job's logs, for a new run, and of
  /// the newest run, for a new attempt. Empty: there are none yet.
  [[nodiscard]] virtual std::vector<UniqueFd> open_log_folders(Principal who,
                                                               const JobId& id) const = 0;
  /// The report of acc-launch, if there is one: at most 1 MiB.
  [[nodiscard]] virtual Result<std::string> report(Principal who, const JobId& id) const = 0;

  /// Events after `number` that `who` may see; the oldest may be gone (some thousand are kept).
  [[nodiscard]] virtual std::vector<JobEvent> events_after(Principal who,
                                                           std::uint64_t number) const = 0;
  /// Called on the loop after each new event, until the handle is dropped.
  using Subscription = std::shared_ptr<void>;
  [[nodiscard]] virtual Subscription on_event(std::function<void(const JobEvent&)> told) = 0;
};

}  // namespace acc::agent::daemon
