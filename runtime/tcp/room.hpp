#pragma once

#include "runtime/backend.hpp"
#include "runtime/shm/process_watch.hpp"
#include "runtime/shm/segment.hpp"
#include "runtime/shm/waiting.hpp"
#include "runtime/tcp/placement.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::hosts {

using shm::kTwoLines;
using shm::Presence;
using shm::Word;

/// A call on its way.
struct Turn {
  explicit Turn(const Call& made) : call{made} {}
  const Call& call;
  std::uint32_t number = 0;  ///< of the collective; 0: a message
  std::optional<Clock::time_point> until;

  /// When it has to be done; max(): it may take for ever. The clock runs from the first wait.
  [[nodiscard]] Clock::time_point deadline() {
    if (!until)
      until = call.limit.count() > 0 ? Clock::now() + call.limit : Clock::time_point::max();
    return *until;
  }
};

/// What a rank says to those of its host; only itself writes it.
struct alignas(kTwoLines) Place {
  Word arrived;                     ///< the last collective that it came to
  alignas(kTwoLines) Word staged;   ///< the last round for which its bytes lie on the board
  alignas(kTwoLines) Word carried;  ///< the last round whose bytes it has moved between the hosts
  alignas(kTwoLines) Word taken;    ///< the last round whose bytes it needs no more
  alignas(kTwoLines) std::array<Descriptor, 2> what;  ///< of the last collectives, by turns
  std::atomic<std::uint32_t> completed;               ///< the last collective that it is through
  std::atomic<std::uint32_t> waits;  ///< asleep or in poll: whoever else is late, it isn't
  std::atomic<Presence> presence;
};

/// The memory that the ranks of one host share, in a group that spans several: where they meet, a
/// board for bytes that come from and go to other hosts, and why the group broke if it did.
class Room {
 public:
  /// Of the board, for one of its two turns. Double: while one is read the next is written.
  static constexpr std::size_t kBoard = 4 << 20;
  [[nodiscard]] static std::size_t bytes(std::size_t near_ranks);

  /// @param broke  called once, on the thread that broke the room, after it did.
  Room(UniqueFd memory, const Placement& placement, std::vector<RankFacts> ranks,
       std::function<void()> broke);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  [[nodiscard]] Place& place(std::size_t index) const noexcept { return places_[index]; }
  [[nodiscard]] Place& mine() const noexcept { return places_[placement_.index]; }
  [[nodiscard]] std::size_t size() const noexcept { return placement_.near().size(); }
  [[nodiscard]] std::byte* board(std::uint32_t round) const noexcept {
    return board_ + (round % 2) * kBoard;
  }

  // ---- meeting ----
  void arrive(Turn& turn) noexcept;
  void complete(const Turn& turn) noexcept;
  /// Waits until all of this host have come.
  void await_arrivals(Turn& turn);
  void await(Turn& turn, Word Place::*word, std::size_t of, std::uint32_t target);
  void await_all(Turn& turn, Word Place::*word, std::uint32_t target);

  // ---- breaking ----
  [[nodiscard]] bool is_well() const noexcept;
  void check_well(const Turn& turn) const {
    if (!is_well()) throw_cause(turn);
  }
  /// The first cause stays; all sleepers of this host wake.
  void break_with(const Error& cause) noexcept;
  /// @return nothing while it is well.
  [[nodiscard]] std::optional<Error> cause() const;
  [[noreturn]] void throw_cause(const Turn& turn) const;
  [[noreturn]] void fail(const Turn& turn, const Error& cause) {
    break_with(cause);
    throw_cause(turn);
  }
  /// What to do when a turn's time is up: finds out who is late and breaks the room.
  void set_give_up(std::function<void(Turn&)> give_up) { give_up_ = std::move(give_up); }
  [[noreturn]] void give_up(Turn& turn);

  // ---- telling ----
  /// The ranks of this host that haven't come to that collective, each with a line about it; if
  /// all have, those that are neither through nor waiting.
  struct Late {
    int rank = 0;
    std::string text;
  };
  [[nodiscard]] std::vector<Late> late(std::uint32_t number) const;
  [[nodiscard]] std::string describe(int rank) const;  ///< "rank 2 (host a, pid 4711)"
  [[nodiscard]] std::string describe_state(std::size_t index) const;

 private:
  struct Header;
  [[nodiscard]] bool is_stopped(std::size_t index) const;
  void watch_processes();
  void wake_all() noexcept;
  void wait(Turn& turn, Word& word, std::size_t of, std::uint32_t target);

  const Placement& placement_;
  std::vector<RankFacts> ranks_;
  std::function<void()> broke_;
  std::function<void(Turn&)> give_up_;
  std::shared_ptr<shm::Mapping> mapping_;
  Header* header_;
  Place* places_;
  std::byte* board_;
  shm::Patience patience_;
  std::shared_ptr<shm::ProcessWatch> watch_;
  std::vector<std::uint64_t> watched_;
};

}  // namespace acc::runtime::hosts
