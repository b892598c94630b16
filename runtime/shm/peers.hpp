#pragma once

#include "runtime/backend.hpp"
#include "runtime/shm/blame.hpp"
#include "runtime/shm/process_watch.hpp"
#include "runtime/shm/segment.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::shm {

/// The counts of a rank that others wait for.
enum class Count : std::uint8_t {
  arrival0,
  arrival1,
  staged,
  processed,
  taken,
  met,
  message,
  space
};

/// A call of this rank while it runs.
struct ActiveCall {
  explicit ActiveCall(const Call& made) noexcept : call{made} {}
  const Call& call;
  std::uint32_t number = 0;  ///< of the collective, over several hosts; 0: a message

  /// Deadline of the call; max(): none. The time limit runs from the first wait.
  [[nodiscard]] Clock::time_point deadline() noexcept {
    if (!until_)
      until_ = call.limit.count() > 0 ? Clock::now() + call.limit : Clock::time_point::max();
    return *until_;
  }
  /// A send may run concurrently with another call; each has its own entry in `sleeps_at`.
  [[nodiscard]] std::size_t lane() const noexcept {
    return call.what.operation == Operation::send ? 1 : 0;
  }

 private:
  std::optional<Clock::time_point> until_;
};

/// "rank 2 (host a, pid 4711)"
[[nodiscard]] std::string describe(const RankFacts& facts);

/// Synchronisation of the ranks of one node over a shared segment: waiting for each other's counts,
/// and failure of any of them.
class Peers {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::vector<RankFacts> ranks;
    std::string group;
    bool check = true;           ///< compare the calls of the ranks
    bool is_whole_group = true;  ///< all ranks of the group are on this node
    /// Called once, on the thread that broke the group, after it did.
    std::function<void()> on_break;
    /// Called when a call's time is up, before the group breaks because of it: may break it with an
    /// error that covers other nodes.
    std::function<void(ActiveCall&)> find_late;
  };
  Peers(UniqueFd segment, const Layout& layout, Options options);
  /// Marks this rank as left.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] int rank() const noexcept { return options_.rank; }
  [[nodiscard]] int size() const noexcept { return options_.size; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const Segment& segment() const noexcept { return segment_; }
  [[nodiscard]] RankState& mine() const noexcept { return segment_.rank_state(options_.rank); }
  [[nodiscard]] int cores() const noexcept { return cores_; }  ///< shared by the ranks

  [[nodiscard]] bool is_healthy() const noexcept {
    return segment_.header().health.load(std::memory_order_acquire) == Health::healthy;
  }
  /// @throws Error the first cause, if the group is broken.
  void check_healthy(const ActiveCall& active) {
    if (!is_healthy()) throw_cause(active);
  }

  /// The first cause; nothing: the group is healthy, or the rank that broke it ended before it
  /// could write the cause.
  [[nodiscard]] std::optional<Error> cause() const;

  /// Begins a collective: announces it to the others. `number` counts the collectives of this
  /// segment.
  void arrive(const ActiveCall& active, std::uint64_t send_at = 0, std::uint64_t recv_at = 0) {
    ++number_;
    Arrival& arrival = mine().arrivals[number_ % 2];
    arrival.what = active.call.what;
    arrival.send_at = send_at;
    arrival.recv_at = recv_at;
    post(arrival.word, number_ * kStep);
  }
  /// Waits until all have arrived, and compares their calls. @throws Error mismatch, timed_out,
  /// peer_lost.
  void await_arrivals(ActiveCall& active);
  [[nodiscard]] const Arrival& arrival(int rank) const noexcept {
    return segment_.rank_state(rank).arrivals[number_ % 2];
  }
  /// Marks the collective as completed.
  void complete() noexcept {
    mine().completed.store(number_, std::memory_order_release);
    if (number_ == 1) settle();
  }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  void await(ActiveCall& active, int rank, Count which, std::uint32_t target) {
    Word& word = word_of(rank, which);
    if (!reached(word, target * kStep)) wait(active, rank, word, which, target * kStep);
  }
  void await_all(ActiveCall& active, Count which, std::uint32_t target) {
    for (int step = 1; step < size(); ++step) await(active, after(step), which, target);
  }
  /// For words outside of RankState.
  void await(ActiveCall& active, int rank, Word& word, Count which, std::uint32_t target) {
    if (!reached(word, target * kStep)) wait(active, rank, word, which, target * kStep);
  }
  /// The rank `step` after this one, cyclically, so that not all wait for the same rank first.
  [[nodiscard]] int after(int step) const noexcept {
    const int rank = options_.rank + step;
    return rank < options_.size ? rank : rank - options_.size;
  }

  /// Breaks the group for all with this cause, unless it is broken.
  void break_with(const Error& error, const Descriptor& what, int culprit = -1) noexcept;
  [[noreturn]] void fail(const ActiveCall& active,
                         const Error& error);               ///< breaks the group and throws
  [[noreturn]] void throw_cause(const ActiveCall& active);  ///< of a broken group
  /// A call's time is up: breaks the group and throws, with `text` about the ranks that are late.
  [[noreturn]] void give_up(ActiveCall& active, const std::string& text, std::vector<int> ranks);
  /// `how` follows the rank's name in messages: "was killed by SIGKILL (signal 9)".
  void lost(int index, const std::string& how) noexcept;
  /// Index of a rank on this node; -1: on another.
  [[nodiscard]] int index_of(int rank) const noexcept;

  [[nodiscard]] bool can_pull() const noexcept { return can_pull_; }
  void never_pull() noexcept { can_pull_ = false; }

  /// Ranks that the running call waits for; any thread may call.
  [[nodiscard]] std::vector<int> waits_for() const;
  /// "all_reduce f32 x1000 sum #17 of world": how messages begin.
  [[nodiscard]] std::string title(const ActiveCall& active) const;
  [[nodiscard]] std::string describe(int index) const {
    return shm::describe(options_.ranks.at(static_cast<std::size_t>(index)));
  }
  /// "it last completed all_reduce f32 x4 sum #17; it is stopped (process state T)"
  [[nodiscard]] std::string describe_state(int index) const;
  /// How far a rank of this node is.
  [[nodiscard]] RankStatus status(int index) const;

  /// Publishes, as long as it lives, in which call this rank waits.
  class Blocked {
   public:
    Blocked(const Peers& peers, const ActiveCall& active) noexcept
        : wait_{peers.mine().blocked_in[active.lane()]} {
      wait_.begin(peers.wait_of(active));
    }
    ~Blocked() { wait_.end(); }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    PublishedWait& wait_;
  };
  [[nodiscard]] Wait wait_of(const ActiveCall& active) const noexcept {
    const auto operation = active.call.what.operation;
    return {operation,
            is_message(operation) ? static_cast<std::uint32_t>(active.call.peer) : number_};
  }
  /// Publishes that a send or recv is done.
  void message_done(const ActiveCall& active) noexcept {
    mine().messages[active.lane()].set(active.call.what, active.call.peer);
  }

 private:
  [[nodiscard]] Word& word_of(int rank, Count which) const noexcept;
  void wait(ActiveCall& active, int rank, Word& word, Count which, std::uint32_t target);
  bool pause_until(const Word& word, std::uint32_t target) noexcept;
  bool yield_until(const Word& word, std::uint32_t target) noexcept;
  void sleep(ActiveCall& active, int rank, Word& word, Count which, std::uint32_t target);
  [[nodiscard]] bool culprit_is_through(Count which) const noexcept;
  [[noreturn]] void give_up(ActiveCall& active, int rank);
  [[nodiscard]] bool cause_is_written() const noexcept;
  [[nodiscard]] std::vector<int> ranks_to_blame() const;  ///< valid once the cause is written
  [[noreturn]] void throw_left(const ActiveCall& active, int rank);
  [[noreturn]] void throw_gone(const ActiveCall& active, int rank) const;
  [[noreturn]] void throw_mismatch(const ActiveCall& active);
  [[nodiscard]] bool any_differ(std::uint32_t target) const noexcept;
  [[nodiscard]] bool is_stopped(int index) const;
  void poke_sleepers() noexcept;
  void watch_peers();
  void settle() noexcept;

  Options options_;
  Segment segment_;
  SpinPolicy spin_;
  int cores_ = 1;
  std::uint32_t number_ = 0;
  bool can_pull_ = false;
  std::atomic<unsigned> pauses_in_vain_{0};
  std::atomic<unsigned> waits_{0};  ///< waits that yielded
  static constexpr int kLeastSkips = 128;
  std::atomic<int> skip_yields_{0};  ///< waits that go to sleep without yielding
  std::atomic<int> next_skip_{kLeastSkips};
  std::uint64_t probe_ = 0;                ///< read by others to test whether they can read
  std::atomic<std::uint64_t> waiting_{0};  ///< rank, count and target of the wait of lane 0
  std::shared_ptr<ProcessWatch> watch_;
  std::vector<std::uint64_t> watched_;
};

}  // namespace acc::runtime::shm
