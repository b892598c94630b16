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

namespace acc::runtime::nccl {

/// How the ranks of a communicator find out together why a call doesn't end, through the store:
/// the first one whose call is overdue raises the alarm; every rank that hears it says how far it
/// is; the first one makes the verdict of what they said; all end with the verdict. Each rank
/// looks for an alarm a few times a second, seldom enough that a store carries a thousand of them.
///
/// `hear`, `investigate` and `tell` are for the one thread that may wait for the store.
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

  // -- for the talker --
  /// Does what is to be done after `open`; takes up to `window`.
  void investigate(const Whereabouts& whereabouts) noexcept;
  /// Looks for an alarm when it is time to. @return what the others have found
  [[nodiscard]] std::optional<Error> hear(const Whereabouts& whereabouts) noexcept;
  /// Tells the others why this rank's group has ended.
  void tell(const Error& cause, const Position& position) noexcept;
  /// For a rank in its initialisation: has another one failed?
  [[nodiscard]] std::optional<Error> verdict();

 private:
  [[nodiscard]] std::string key(const char* name) const;
  [[nodiscard]] std::string position_key(int rank) const;
  [[nodiscard]] std::vector<std::optional<Position>> collect(const Position& own,
                                                             Clock::time_point deadline);
  [[nodiscard]] std::optional<Error> await_verdict(Clock::time_point deadline);
  void deliver(Error error);

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const std::string prefix_;
  const Millis period_;  ///< of looking for an alarm
  const Millis window_;  ///< for the others to say where they are

  // of the talker
  Clock::time_point next_look_{};
  bool heard_ = false;

  mutable std::mutex mutex_;  ///< of what follows
  std::optional<Stuck> stuck_;
  bool taken_up_ = false;
  Clock::time_point give_up_{};
  std::optional<Error> answer_;
};

}  // namespace acc::runtime::nccl
