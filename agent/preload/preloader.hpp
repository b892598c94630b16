#pragma once

#include "agent/job_plan.hpp"
#include "agent/preload/preload_course.hpp"
#include "agent/preload/preload_environment.hpp"
#include "agent/preload/preload_messages.hpp"
#include "agent/preload/round_gate.hpp"
#include "agent/preload/waiting_course.hpp"
#include "agent/preload/worker_set.hpp"
#include "agent/spawn.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace acc::agent {

class Containment;

/// A Python interpreter that has imported the modules of --preload, and forks the workers of each
/// round (docs/decisions/0043-warm-start.md). Its process is a child of this one, but belongs to
/// no round (Containment::set_helper).
///
/// Used on the loop's thread only. The io_context outlives it.
class Preloader {
 public:
  struct Tools {
    boost::asio::io_context& io;
    Spawner& spawner;
    Containment& containment;
    std::function<void(const std::string&)> warn;
    std::function<void(const std::string&)> note;
    std::function<void()> cgroup_changed;  ///< Containment::cgroup_path of the round
  };
  /// What a worker of this node is started with in any round.
  struct Program {
    std::string path;                  ///< of the interpreter, PATH already searched
    std::vector<std::string> command;  ///< JobPlan::command
    preload::PreloadEnvironment environment;
    bool are_workers_bound = false;  ///< to cores of their own
  };

  Preloader(const Tools& tools, const PreloadPlan& plan);
  ~Preloader();
  Preloader(const Preloader&) = delete;
  Preloader& operator=(const Preloader&) = delete;

  /// Starts the interpreter; the imports begin.
  void start(Program program);
  /// Calls `then` when workers can be forked, or when it is known that they won't be: now or later.
  /// Replaces one that still waits.
  void when_settled(std::function<void()> then);
  void forget_waiter() { waiter_ = nullptr; }
  /// At the job's end: kills the process. The destructor waits for its end.
  void stop();

  /// A round has started, and another one may follow: forks workers for it ahead, one at a time, with
  /// rests (WaitingCourse). They are no children of this process until a round uses them.
  void fork_ahead(std::uint32_t workers);
  /// The round ends: what waits by now is what the next one uses.
  void pause_ahead();

  // ---- a round ----

  struct Worker {
    LocalRank local;
    std::array<int, 3> streams{-1, -1, -1};  ///< stdin, stdout, stderr; < 0: ours
    int pmi = -1;
    const char* const* envp = nullptr;
    std::vector<std::uint32_t> cores;  ///< empty: not bound
    bool takes_terminal = false;
  };
  struct RoundHooks {
    /// It waits at the gate.
    std::function<void(LocalRank, pid_t)> on_made;
    /// All wait there and are children of this process.
    std::function<void()> on_all_made;
    /// Those made so far are the caller's to kill; on_all_made won't be called.
    std::function<void()> on_failed;
  };
  /// Ready, and these environments differ from what was there at the imports in nothing but what
  /// no import has read.
  [[nodiscard]] bool can_fork(const std::vector<WorkerEnvironment>& workers) const;
  /// Forks the workers. Their descriptors and environments must stay until on_all_made, on_failed
  /// or cancel_round().
  void fork_round(std::vector<Worker> workers, RoundHooks hooks);
  /// Lets all go.
  /// @param lease_ends_ns  as Spawner::heed_lease; 0: no lease
  void open_gate(std::int64_t lease_ends_ns) { gate_.open(lease_ends_ns); }
  /// Workers that wait at the gate end by themselves.
  void cancel_round();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  struct ForkingRound;

  bool spawn();
  void watch_exit();
  void read_on();
  void take_packets();
  void take(std::string_view packet);
  void act(const preload::Maker& m);
  void act(const preload::Waits& m);
  void act(const preload::WorkerMade& m);
  void act(const preload::WorkerFailed& m);
  void act(const preload::Made& m);
  template <class Other>
  void act(const Other& m) {
    follow(course_.on(m));
  }
  void follow(preload::PreloadCourse::Next next);
  void tell();
  void settle();
  void limit(Instant until, std::function<void()> then);
  void follow_ahead();
  void fork_one_ahead();
  bool open_set();
  void lose_set();
  void end_set();
  void begin_orders();
  void send_orders();
  bool send(const std::string& packet, std::span<const int> fds = {});
  void fail_round(const std::string& why);
  /// Of the round under way; others are what is left of rounds that were given up.
  [[nodiscard]] bool is_current(preload::ForkNumber fork) const { return round_ && fork == forks_; }
  void end_process();
  [[nodiscard]] bool is_lease_over() const;
  [[nodiscard]] std::string last_words() const;

  const Tools tools_;
  const PreloadPlan plan_;
  preload::PreloadCourse course_;
  std::optional<Program> program_;
  pid_t pid_ = 0;
  pid_t ending_ = 0;  ///< it was killed by stop()
  UniqueFd dev_null_;
  UniqueFd printed_;  ///< its stdout and stderr: a file in memory
  Descriptor exit_;   ///< its pidfd
  Descriptor control_;
  boost::asio::steady_timer timer_;  ///< of the imports, or of a round's forks
  std::function<void()> waiter_;
  preload::WaitingCourse ahead_;
  boost::asio::steady_timer ahead_timer_;
  std::unique_ptr<WorkerSet> set_;  ///< waits, or is forked for the round
  pid_t example_ = 0;               ///< a worker of its last round
  UniqueFd ended_set_;              ///< WorkerSet::end, at the job's end
  std::unique_ptr<ForkingRound> round_;
  preload::ForkNumber forks_ = 0;  ///< sets so far
  RoundGate gate_;
  Alive alive_;
};

}  // namespace acc::agent
