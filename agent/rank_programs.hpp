#pragma once

#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// What is below a worker (is_of_rank): programs, which get its signals, and their helpers, which
/// don't. A worker may be a shell around a program: it dies of the signal at which the program
/// begins to save, and the rank is over when that has ended.
namespace acc::agent {

class RankPrograms {
 public:
  /// The workers which have ended for a while, and whose programs haven't. Called once a round.
  using OnWaiting = std::function<void(const std::vector<pid_t>& workers)>;

  RankPrograms(boost::asio::io_context& io, OnWaiting on_waiting);

  struct Way {
    /// The rank then lives until its programs have ended, except those that ignore the signal, as
    /// what a script started with "&" (SIGINT) or nohup (SIGHUP).
    bool asks_end = false;
    /// All its processes got the signal from elsewhere: it is only noted.
    bool is_delivered = false;
  };
  /// To the worker and its programs; to the whole group where helpers aren't spared
  /// (spares_helpers), or can't be told from programs.
  /// @param orphans  processes of its group whose parents have exited
  void signal(pid_t worker, int signo, std::span<const pid_t> orphans, Way way);
  /// The worker has ended and isn't reaped yet, so the number of its group stays its own.
  /// @param death_signal  that it died of; 0: it exited
  /// @return whether programs of it live that were asked to end: `then` is called when none does
  bool await_programs(pid_t worker, int death_signal, std::function<void()> then);
  /// Of a worker that was asked to end, has ended and isn't reaped yet. They had no signal with it.
  /// One whose own program lives on is left to that.
  void end_helpers(pid_t worker);
  /// Of a worker that has ended.
  [[nodiscard]] bool are_awaited(pid_t worker) const { return awaited_.contains(worker); }
  /// Whether the process, or the one that it runs, got its signal here: a second one would come
  /// into the handler of the first. Not told of those in the group of a living worker.
  [[nodiscard]] bool has_had_signal(pid_t pid) const;
  /// Those of the worker that live and were asked to end, as far as they are known.
  [[nodiscard]] std::vector<pid_t> living(pid_t worker) const;
  /// Before a round.
  void clear();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  /// A program that was asked to end. As long as its worker isn't reaped nothing else has the
  /// number of the worker's group; in another one its time of start tells it from a later process.
  struct Asked {
    pid_t pid = 0;
    pid_t group = 0;
    std::uint64_t start_time = 0;  ///< 0: in the worker's group
  };
  struct Look {
    bool lives = false;  ///< and is still in its group
    UniqueFd pidfd;      ///< none: there is no descriptor to spare
  };
  struct Awaited {
    std::unique_ptr<Descriptor> pidfd;  ///< of one of the programs
    std::unique_ptr<boost::asio::steady_timer> look_again;  ///< where that can't be had
    std::function<void()> then;
  };

  /// Programs that a shell's trap may have passed a signal on to.
  struct Served {
    int signo = 0;
    std::vector<pid_t> programs;
  };

  static Look look_at(const Asked& program);
  void signal_served(pid_t worker, int death_signal);
  [[nodiscard]] std::vector<pid_t> roots(pid_t worker, std::span<const pid_t> orphans) const;
  void note(pid_t worker, int signo, std::span<const pid_t> programs);
  static void send(pid_t worker, int signo, std::span<const pid_t> programs,
                   const std::unordered_set<pid_t>& groups);
  void note_signalled(pid_t pid);
  bool await_one(pid_t worker);
  void watch(pid_t worker, UniqueFd pidfd);
  void tell_later();

  boost::asio::io_context& io_;
  OnWaiting on_waiting_;
  boost::asio::steady_timer patience_;
  bool is_told_ = false;
  std::unordered_map<pid_t, std::vector<Asked>> asked_;   ///< programs, by their worker
  std::unordered_map<pid_t, std::vector<pid_t>> spared_;  ///< helpers, by their worker
  std::unordered_map<pid_t, Awaited> awaited_;            ///< by the worker
  std::unordered_map<pid_t, Served> unclear_;             ///< by the worker
  std::unordered_map<pid_t, std::uint64_t> signalled_;  ///< has_had_signal(): times of their start
};

}  // namespace acc::agent
