#pragma once

#include "runtime/backend.hpp"
#include "runtime/shm/process_watch.hpp"
#include "runtime/shm/segment.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::shm {

/// The counts of a place that others wait for.
enum class Count : std::uint8_t { arrival0, arrival1, staged, reduced, taken, met, message, room };

/// One call of this rank, from its begin to its end.
struct Turn {
  explicit Turn(const Call& made) noexcept : call{made} {}
  const Call& call;
  bool is_waiting = false;  ///< the clock was read
  std::optional<Clock::time_point> deadline;
  /// A send may run beside something else; each has a place of its own to sleep.
  [[nodiscard]] std::size_t lane() const noexcept {
    return call.what.operation == Operation::send ? 1 : 0;
  }
};

/// Where the ranks of one node meet, and where each learns that another will not come.
class Peers {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::vector<RankFacts> ranks;
    std::string group;
    bool check = true;  ///< do all call the same?
  };
  Peers(UniqueFd segment, Options options);
  /// Tells the others that this rank has left.
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] int rank() const noexcept { return options_.rank; }
  [[nodiscard]] int size() const noexcept { return options_.size; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const Segment& segment() const noexcept { return segment_; }
  [[nodiscard]] Place& mine() const noexcept { return segment_.place(options_.rank); }
  [[nodiscard]] int cores() const noexcept { return cores_; }  ///< that the ranks share

  /// @throws Error the first cause, when the group is broken.
  void check_well(const Turn& turn) {
    if (segment_.header().health.load(std::memory_order_acquire) != Health::well) throw_cause(turn);
  }

  /// A collective begins: says so to the others. `number` counts the collectives of this segment.
  void arrive(const Turn& turn, std::uint64_t send_at = 0, std::uint64_t recv_at = 0) {
    ++number_;
    Arrival& arrival = mine().arrivals[number_ % 2];
    arrival.what = turn.call.what;
    arrival.send_at = send_at;
    arrival.recv_at = recv_at;
    post(arrival.word, number_ * kStep);
  }
  /// Waits for all, and compares what they call. @throws Error mismatch, timed_out, peer_lost.
  void await_arrivals(Turn& turn);
  [[nodiscard]] const Arrival& arrival(int rank) const noexcept {
    return segment_.place(rank).arrivals[number_ % 2];
  }
  /// A collective is done.
  void complete() noexcept {
    mine().completed.store(number_, std::memory_order_release);
    if (number_ == 1) settle();
  }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  void await(Turn& turn, int rank, Count which, std::uint32_t target) {
    Word& word = word_of(rank, which);
    if (!reached(word, target * kStep)) wait(turn, rank, word, which, target * kStep);
  }
  void await_all(Turn& turn, Count which, std::uint32_t target) {
    for (int step = 1; step < size(); ++step) await(turn, after(step), which, target);
  }
  /// For words outside of the places.
  void await(Turn& turn, int rank, Word& word, Count which, std::uint32_t target) {
    if (!reached(word, target * kStep)) wait(turn, rank, word, which, target * kStep);
  }
  /// The rank `step` behind this one, in a ring: so that not all wait for the same at first.
  [[nodiscard]] int after(int step) const noexcept {
    const int rank = options_.rank + step;
    return rank < options_.size ? rank : rank - options_.size;
  }

  /// Breaks the group for all with this cause, unless it is broken.
  void break_with(const Error& error, const Descriptor& what, int culprit = -1) noexcept;
  [[noreturn]] void fail(const Turn& turn, const Error& error);  ///< breaks and throws
  void lost(int index, const std::string& how) noexcept;
  /// -1: not one of this node.
  [[nodiscard]] int index_of(int rank) const noexcept;

  [[nodiscard]] bool can_pull() const noexcept { return can_pull_; }
  void never_pull() noexcept { can_pull_ = false; }

  /// Of the running call; any thread may ask.
  [[nodiscard]] std::vector<int> waits_for() const;
  /// "all_reduce f32 x1000 sum #17 of world": how messages begin.
  [[nodiscard]] std::string title(const Turn& turn) const;
  [[nodiscard]] std::string describe(int index) const;  ///< "rank 2 (host a, pid 4711)"

 private:
  [[nodiscard]] Word& word_of(int rank, Count which) const noexcept;
  void wait(Turn& turn, int rank, Word& word, Count which, std::uint32_t target);
  bool pause_until(const Word& word, std::uint32_t target) noexcept;
  bool yield_until(const Word& word, std::uint32_t target) noexcept;
  void sleep(Turn& turn, int rank, Word& word, Count which, std::uint32_t target);
  [[nodiscard]] bool culprit_is_through(Count which) const noexcept;
  [[noreturn]] void give_up(const Turn& turn, int rank, Count which, std::uint32_t target);
  [[nodiscard]] bool cause_is_written() const noexcept;
  [[noreturn]] void throw_cause(const Turn& turn);
  [[noreturn]] void throw_left(const Turn& turn, int rank);
  [[noreturn]] void throw_gone(const Turn& turn, int rank) const;
  [[noreturn]] void throw_mismatch(const Turn& turn);
  [[nodiscard]] bool some_differ(std::uint32_t target) const noexcept;
  [[nodiscard]] bool is_stopped(int index) const;
  /// Who was stopped in the call that this rank is in.
  [[nodiscard]] std::vector<int> stopped_in_call() const;
  [[nodiscard]] std::vector<int> late(int rank, Count which, std::uint32_t target) const;
  [[nodiscard]] std::string describe_late(int index, Count which) const;
  [[nodiscard]] std::string last_completed(int index) const;
  void poke_sleepers() noexcept;
  void watch_peers();
  void settle() noexcept;

  Options options_;
  Segment segment_;
  Patience patience_;
  int cores_ = 1;
  std::uint32_t number_ = 0;
  bool can_pull_ = false;
  std::atomic<unsigned> pauses_in_vain_{0};
  std::atomic<unsigned> waits_{0};  ///< that yielded
  static constexpr int kLeastHaste = 128;
  std::atomic<int> haste_{0};  ///< waits that go to sleep without yielding
  std::atomic<int> next_haste_{kLeastHaste};
  std::uint64_t probe_ = 0;                ///< what others read to see whether they can
  std::atomic<std::uint64_t> waiting_{0};  ///< rank, count and target of the wait of lane 0
  std::shared_ptr<ProcessWatch> watch_;
  std::vector<std::uint64_t> watched_;
};

}  // namespace acc::runtime::shm
