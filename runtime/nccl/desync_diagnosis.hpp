#pragma once

#include "runtime/backend.hpp"
#include "runtime/group/group.hpp"
#include "runtime/nccl/desync.hpp"
#include "runtime/net/store.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace acc::runtime::nccl {

/// Distributed diagnosis, through the store, of a call that doesn't end: the first rank whose call
/// is overdue raises an alarm and becomes the collector; every rank that sees the alarm publishes
/// its progress; the collector derives the verdict, with which all fail. Each rank polls for an
/// alarm a few times a second, rarely enough for a store to serve a thousand ranks.
class DesyncDiagnosis {
 public:
  using OwnProgress = std::function<RankProgress()>;

  DesyncDiagnosis(std::shared_ptr<Store> store, const GroupFacts& facts);

  // -- for the judge: never blocking --
  /// Opens it, once; the talker then investigates.
  void open(const OverdueCall& overdue, Clock::time_point now);
  [[nodiscard]] bool is_open() const;
  /// The verdict; after its deadline what this rank knows by itself; before, nothing.
  [[nodiscard]] std::optional<Error> answer(Clock::time_point now) const;

  // -- for the talker: one thread that may wait for the store, but not for other ranks, as it
  // serves other groups as well --
  /// Does the next step. @return why the group has to end
  [[nodiscard]] std::optional<Error> step(const OwnProgress& own_progress) noexcept;
  /// When its next step is due.
  [[nodiscard]] Clock::time_point next_step() const noexcept { return next_step_; }
  /// Reports to the others why the group ended on this rank.
  void tell(const Error& cause, const RankProgress& progress) noexcept;
  /// Also for a rank in its initialisation: has another one failed?
  [[nodiscard]] std::optional<Error> verdict();

  // -- the end: the store may be in a process of the group, and end with it --
  /// Acknowledges the end of the group. Once.
  void acknowledge() noexcept;
  /// Waits briefly until all have acknowledged: some may be dead.
  void linger() const noexcept;

 private:
  enum class Part : std::uint8_t {
    bystander,    ///< no alarm so far
    contributor,  ///< has published its progress and waits for the verdict
    collector,    ///< raised the alarm first: collects the progress of all
  };
  [[nodiscard]] std::string key(const char* name) const;
  [[nodiscard]] std::string progress_key(int rank) const;
  void raise_alarm(const OverdueCall& overdue, const RankProgress& own);
  void look_for_alarm(const OwnProgress& own_progress);
  [[nodiscard]] std::optional<Error> collect();
  [[nodiscard]] std::optional<OverdueCall> overdue() const;

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const std::string prefix_;
  const Millis period_;  ///< of polling for an alarm
  const Millis window_;  ///< for the others to publish their progress

  // used by the talker
  Part part_ = Part::bystander;
  Clock::time_point next_step_{};
  Clock::time_point collect_until_{};
  std::vector<std::optional<RankProgress>> progress_of_;

  mutable std::mutex mutex_;  ///< of what follows
  std::optional<OverdueCall> overdue_;
  Clock::time_point give_up_{};
};

}  // namespace acc::runtime::nccl
