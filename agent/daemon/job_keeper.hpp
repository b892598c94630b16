#pragma once

#include "agent/daemon/event_ring.hpp"
#include "agent/daemon/guardian_process.hpp"
#include "agent/daemon/job_folder.hpp"
#include "agent/daemon/job_machine.hpp"
#include "agent/daemon/job_record.hpp"
#include "agent/daemon/service_settings.hpp"
#include "agent/daemon/slot_table.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

/// The jobs of the daemon with their processes and folders: feeds each job's machine with events
/// and carries out what it decides, one action after the other. Who may ask for what is decided
/// above (job_service.hpp).
namespace acc::agent::daemon {

/// The note that holds why the node is drained.
inline constexpr const char* kDrainedNote = "drained";

struct Job {
  Job(boost::asio::io_context& io, StoredJob job)
      : stored{std::move(job)}, process{io}, delay{io}, kill{io}, idle{io} {
    idle.expires_at(boost::asio::steady_timer::time_point::max());
  }

  StoredJob stored;
  std::optional<LoginUser> user;
  boost::asio::posix::stream_descriptor process;  ///< a pidfd of the guardian, while it runs
  std::chrono::steady_clock::time_point begun{};  ///< of the guardian, or of its adoption
  boost::asio::steady_timer delay;
  boost::asio::steady_timer kill;
  std::deque<JobAction> actions;
  bool is_busy = false;            ///< its actions are being carried out
  boost::asio::steady_timer idle;  ///< cancelled when they have been
  bool is_leaving = false;         ///< its folder is being removed

  [[nodiscard]] const JobId& id() const { return stored.id; }
};
using JobPtr = std::shared_ptr<Job>;

class JobKeeper {
 public:
  JobKeeper(boost::asio::io_context& io, ServiceSettings settings);
  ~JobKeeper();
  JobKeeper(const JobKeeper&) = delete;
  JobKeeper& operator=(const JobKeeper&) = delete;

  /// Locks the state folder and finds the jobs of an earlier daemon again.
  boost::asio::awaitable<Result<void>> start();

  /// Gives it an id and a folder, and starts it when it has its slots.
  boost::asio::awaitable<Result<JobPtr>> add(StoredJob job, LoginUser user,
                                             const std::string* job_file);
  /// Feeds the machine. What follows is carried out later: settled() waits for it.
  void change(const JobPtr& job, const JobChange& event);
  boost::asio::awaitable<void> settled(JobPtr job);
  /// Of an ended job.
  boost::asio::awaitable<Result<void>> drop(JobPtr job);
  /// Writes its record anew.
  boost::asio::awaitable<Result<void>> record(JobPtr job);
  /// One request to the job's agent.
  boost::asio::awaitable<Result<std::string>> ask(JobPtr job, std::string request);
  [[nodiscard]] Result<void> send_signal(const Job& job, int signo);
  /// Runs acc-launch as that user, and returns what it wrote and its exit code.
  struct Trial {
    int exit_code = 0;
    std::string output;
  };
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user,
                                                     std::vector<std::string> words);
  /// The same where and how a job of this submission would run: in its folder, with its variables
  /// and, of a launch, its secret.
  boost::asio::awaitable<Result<Trial>> try_launcher(LoginUser user, Submission submission,
                                                     std::vector<std::string> words);
  /// Any program, there and so.
  boost::asio::awaitable<Result<Trial>> try_program(std::string program, LoginUser user,
                                                    Submission submission,
                                                    std::vector<std::string> words);
  boost::asio::awaitable<Result<LoginUser>> look_up(uid_t uid, gid_t gid);
  boost::asio::awaitable<Result<LoginUser>> look_up(std::string name);

  void report(const std::string& kind, const Job* job, const std::string& text);
  [[nodiscard]] JobPtr find(const JobId& id) const;
  [[nodiscard]] const std::map<JobId, JobPtr>& jobs() const { return jobs_; }
  [[nodiscard]] const EventRing& events() const { return events_; }
  [[nodiscard]] SlotTable& slots() { return slots_; }
  [[nodiscard]] const SlotTable& slots() const { return slots_; }
  [[nodiscard]] StateFolder& folder() { return *folder_; }
  [[nodiscard]] boost::asio::thread_pool& files() { return files_; }
  [[nodiscard]] const ServiceSettings& settings() const { return settings_; }
  /// A drained node starts no job that waits; restarts of those that run go on.
  void set_drained(bool is_drained);
  [[nodiscard]] bool is_drained() const { return is_drained_; }
  void set_prune_rules(const PruneRules& rules);
  void close();
  /// Called with each new event.
  std::map<std::uint64_t, std::function<void(const JobEvent&)>> told;

 private:
  void adopt(const JobPtr& job);
  boost::asio::awaitable<void> adopt_ended(JobPtr job);
  boost::asio::awaitable<void> carry_out_all(JobPtr job);
  boost::asio::awaitable<void> carry_out(JobPtr job, JobAction action);
  boost::asio::awaitable<void> start_guardian(JobPtr job);
  boost::asio::awaitable<void> stop_guardian(JobPtr job, std::optional<std::uint32_t> grace_s);
  boost::asio::awaitable<void> kill_guardian(JobPtr job);
  boost::asio::awaitable<void> watch(JobPtr job);
  boost::asio::awaitable<void> sweep(JobPtr job);
  boost::asio::awaitable<void> prune();
  boost::asio::awaitable<void> empty_trash();
  void spawn(const char* what, boost::asio::awaitable<void> work);
  void give_slots();
  void prune_later();
  void reserve_numbers();
  [[nodiscard]] Found look(const Job& job, const UniqueFd& process, std::int64_t& ended_ms) const;
  [[nodiscard]] Result<GuardianRequest> request_for(const Job& job) const;
  [[nodiscard]] Result<rendezvous::SecretBytes> secret_for(const LoginUser& user,
                                                           const Submission& submission) const;
  [[nodiscard]] JobId new_id(const std::string& name) const;
  boost::asio::thread_pool& slow();

  boost::asio::io_context& io_;
  ServiceSettings settings_;
  std::optional<StateFolder> folder_;
  std::string jobs_group_;
  SlotTable slots_;
  EventRing events_{1};
  std::uint64_t reserved_ = 0;  ///< numbers below it may be given to events
  std::map<JobId, JobPtr> jobs_;
  boost::asio::steady_timer prune_timer_;
  bool is_pruning_ = false;
  bool is_emptying_ = false;
  bool has_trash_ = false;
  bool is_drained_ = false;
  bool is_closed_ = false;
  boost::asio::thread_pool files_{1};
  std::optional<boost::asio::thread_pool> slow_;  ///< for what may take long; made when needed
};

[[nodiscard]] std::int64_t wall_ms();

}  // namespace acc::agent::daemon
