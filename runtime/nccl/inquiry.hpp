#pragma once

#include "runtime/backend.hpp"
#include "runtime/bootstrap/store.hpp"
#include "runtime/group/group.hpp"
#include "runtime/nccl/desync.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::nccl {

/// How the ranks of a communicator find out together why a call doesn't end, through the store:
/// the first one whose call is overdue raises the alarm; every rank that hears it says how far it
/// is; the first one makes the verdict of what they said; all end with the verdict. Each rank
/// looks for an alarm a few times a second, seldom enough that a store carries a thousand of them.
class Inquiry {
 public:
  using Whereabouts = std::function<Position()>;

  Inquiry(std::shared_ptr<Store> store, const GroupFacts& facts);

  // -- for the judge: these never wait --
  /// Opens it, once: the talker investigates next.
  void open(const Stuck& stuck, Clock::time_point now);
  [[nodiscard]] bool is_open() const;
  /// The verdict; or, when the time for it is over, what this rank knows by itself; else nothing.
  [[nodiscard]] std::optional<Error> answer(Clock::time_point now) const;

  // -- for the talker: one thread that may wait for the store, but not for the other ranks, as it
  // speaks for other groups as well --
  /// The next thing that is to be said or asked now. @return why the group is to end
  [[nodiscard]] std::optional<Error> turn(const Whereabouts& whereabouts) noexcept;
  /// When it wants its next turn.
  [[nodiscard]] Clock::time_point next_turn() const noexcept { return next_turn_; }
  /// Tells the others why this rank's group has ended.
  void tell(const Error& cause, const Position& position) noexcept;
  /// For a rank in its initialisation: has another one failed?
  [[nodiscard]] std::optional<Error> verdict();

  // -- the end: the store may live in a process of the group, and go with it --
  /// This rank knows that the group has ended. Once.
  void acknowledge() noexcept;
  /// Waits until all know, but not for long: some may be dead.
  void linger() const noexcept;

 private:
  enum class Part : std::uint8_t {
    bystander,  ///< no alarm so far
    witness,    ///< has said where it is and waits for the verdict
    collector,  ///< the first to raise the alarm: asks all the others
  };
  [[nodiscard]] std::string key(const char* name) const;
  [[nodiscard]] std::string position_key(int rank) const;
  void raise_alarm(const Stuck& stuck, const Position& own);
  void look_for_alarm(const Whereabouts& whereabouts);
  [[nodiscard]] std::optional<Error> collect();
  [[nodiscard]] std::optional<Stuck> stuck() const;

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const std::string prefix_;
  const Millis period_;  ///< of looking for an alarm
  const Millis window_;  ///< for the others to say where they are

  // of the talker
  Part part_ = Part::bystander;
  Clock::time_point next_turn_{};
  Clock::time_point collect_until_{};
  std::vector<std::optional<Position>> positions_;

  mutable std::mutex mutex_;  ///< of what follows
  std::optional<Stuck> stuck_;
  Clock::time_point give_up_{};
};

}  // namespace acc::runtime::nccl
