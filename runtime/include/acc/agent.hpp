#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

/// What a worker tells the agent that supervises it (docs/worker-socket.md). Without an agent, or
/// with one that went away, all of it does nothing: a training loop needs no other path. Any thread
/// may call; nothing waits for an answer.
namespace acc::agent {

/// Did our agent start this process, and can it be told something?
[[nodiscard]] bool present();

/// This worker is alive, at this step. Cheap (one system call): call it once a step.
void heartbeat(std::uint64_t step);
/// A checkpoint of this step is complete: restarts count as progress from here.
void checkpoint(std::uint64_t step);
/// Starting again would not help (data missing, loss is NaN): the job ends with this process.
void no_restart(std::string_view why);

/// May this process still make something valid for its job: rename a checkpoint to its place, move a
/// pointer to the newest one? Ask when the data is written, right before it is made valid:
///
///     write(temporary);
///     if (!acc::agent::is_current()) return;  // a later attempt has begun without us
///     std::filesystem::rename(temporary, checkpoint);
///
/// A machine can be frozen or paused for so long that the others began the next attempt without it;
/// once it wakes up, its processes may run for a moment. So the answer comes from the job's
/// coordinator, which proves that it still is the coordinator. What is left: a virtual
/// machine that is paused, with its clocks, while that answer is on its way. Takes a round trip; on one machine, and without
/// acc-launch (true), at once.
/// @param timeout  for a coordinator that is out of reach or being replaced
/// @throws runtime::Error  timed_out: nobody could prove it; system: the agent is gone. Then don't.
[[nodiscard]] bool is_current(std::chrono::milliseconds timeout = std::chrono::seconds{60});

/// Beats by a thread of its own, for programs whose steps are longer than the agent's patience: it
/// repeats the last step told. It proves that the process runs, not that the training does; prefer
/// heartbeat() where steps are short.
class Heartbeat {
 public:
  explicit Heartbeat(std::chrono::milliseconds every = std::chrono::seconds{1});
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// The step to tell from now on; no system call.
  void at(std::uint64_t step) noexcept;

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace acc::agent
