#pragma once

#include "common/duration.hpp"
#include "common/heartbeat_page.hpp"
#include "common/ids.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// The agent's side of the page of heartbeats, a fresh one for each round. What workers report over
/// their socket is written into their places on the page, so that a reader looks only there.
class HeartbeatBoard {
 public:
  /// Without memory for a page the round has none, and workers send messages.
  void begin_round(Round round, std::uint32_t workers);
  /// Called once a round: a worker has begun to report. Until then nothing needs to look.
  void on_first_sign(std::function<void()> act) { on_first_sign_ = std::move(act); }

  /// Called at each message of a complete checkpoint.
  void on_checkpoint_told(std::function<void()> act) { on_checkpoint_told_ = std::move(act); }

  /// Of this process, as the round's workers open it; empty: there is none.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] int fd() const { return page_.fd(); }
  [[nodiscard]] bool is_in_use() const { return is_in_use_; }
  /// In the order of the local ranks; empty: no page.
  [[nodiscard]] std::vector<heartbeat::Beat> beats() const;
  [[nodiscard]] std::optional<heartbeat::Beat> beat(LocalRank worker) const;
  /// Complete checkpoints in this round, by any worker here.
  [[nodiscard]] std::uint64_t checkpoints() const;

  /// The program of this worker that has the page, by its pid there, has ended.
  void release(LocalRank worker, std::uint32_t pid);

  // ---- messages of workers ----
  void on_beat(LocalRank worker, std::uint64_t step);
  void on_section(LocalRank worker, const std::string& name, Millis limit);
  void on_checkpoint(LocalRank worker, std::uint64_t step);

 private:
  /// Null: the worker writes there by itself, or there is no page.
  [[nodiscard]] heartbeat::Slot* slot_to_fill(LocalRank worker) const;
  void note_sign();

  heartbeat::Mapping page_;
  std::function<void()> on_first_sign_;
  std::function<void()> on_checkpoint_told_;
  bool is_in_use_ = false;
};

}  // namespace acc::agent
