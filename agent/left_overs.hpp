#pragma once

#include "agent/containment.hpp"
#include "common/duration.hpp"

#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// Ends the processes of a round that outlived or left their worker: thousands of them in linear
/// time, in slices of a few milliseconds, so that the event loop is not blocked.
namespace acc::agent {

/// How long helpers of a worker may take to exit by themselves, as Python's resource tracker does:
/// `quiet` on a quiet machine, longer with the number of processes that wait for a core, four times
/// that at most.
/// @param runnable  processes and threads that run or could
[[nodiscard]] Millis left_over_patience(Millis quiet, std::uint32_t runnable, std::uint32_t cores);
/// The same for this machine now.
[[nodiscard]] Millis left_over_patience(Millis quiet);

class LeftOvers {
 public:
  /// A LeftOver beyond the first so many of a list has no name: one costs as much as twenty
  /// signals.
  static constexpr std::size_t kNamed = 32;

  struct Hooks {
    std::function<bool(pid_t)> is_worker;                        ///< the leader of a living worker
    std::function<bool(pid_t)> has_had_signal;                   ///< RankPrograms::has_had_signal
    std::function<void(const std::vector<LeftOver>&)> on_asked;  ///< these have just got SIGTERM
  };

  /// `io` and `containment` outlive it.
  LeftOvers(boost::asio::io_context& io, Containment& containment, Hooks hooks);

  /// SIGTERM and SIGCONT, once, to each process that works for no living worker: it is none, isn't
  /// in the group of one, and doesn't descend from one.
  void terminate();
  /// SIGKILL to all, workers included. To be called again for each orphan that is reparented to us.
  void kill();
  /// The round is over, or a new one begins: nothing is under way any more.
  void reset();

 private:
  enum class Aim { none, terminate, kill };
  void request(Aim aim);
  void begin_pass(Aim aim);
  void go_on();
  void visit(const Containment::Member& member);
  void ask(const Containment::Member& member);
  bool descends_from_worker(pid_t pid);
  void end_pass();

  boost::asio::io_context& io_;
  Containment& containment_;
  Hooks hooks_;
  boost::asio::steady_timer rest_;
  Aim aim_ = Aim::none;   ///< of the pass under way
  Aim next_ = Aim::none;  ///< of the one after it
  std::uint64_t epoch_ = 0;
  std::vector<Containment::Member> members_;  ///< as they were when the pass began
  std::size_t position_ = 0;
  std::chrono::nanoseconds took_{0};
  std::vector<LeftOver> newly_asked_;
  std::unordered_set<pid_t> asked_;
  std::unordered_map<pid_t, bool> descends_;  ///< what this pass knows of living workers
};

}  // namespace acc::agent
