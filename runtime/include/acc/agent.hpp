#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

/// Reports of a worker to the agent that supervises it (docs/worker-socket.md). Without an agent,
/// or after it has exited, they have no effect, so a training loop needs no other path. Any thread
/// may call; no call waits for an answer.
namespace acc::agent {

/// Was this process started by an agent that accepts reports?
[[nodiscard]] bool present();

/// Reports that this worker is alive, at this step: call it once a step. It writes to memory that
/// the agent reads (some nanoseconds, no system call); with an agent of an older version it sends a
/// message. acc-launch --hang_timeout acts when a worker's heartbeats stop.
void heartbeat(std::uint64_t step);
/// Reports a complete checkpoint of this step: restarts count as progress from here
/// (--max_no_progress), and work done before it isn't lost (the report's goodput).
void checkpoint(std::uint64_t step);

/// A part of the program that may take longer than a step: a checkpoint, an evaluation, a compiler.
/// As long as it lasts no missing heartbeat counts as a hang, unless it takes longer than its
/// limit. Sections may be nested; the innermost one counts. Objects are destroyed in the reverse
/// order of their creation, as local variables are.
class Section {
 public:
  /// @param name  shown in reports; the first 55 bytes
  /// @param limit  from here to its end, or to the end of a section in it; nothing: any time
  explicit Section(std::string_view name,
                   std::optional<std::chrono::milliseconds> limit = std::nullopt);
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;
};
/// The same without an object, for other languages. @param limit  0: any time
void begin_section(std::string_view name, std::chrono::milliseconds limit);
void end_section();

/// Reports that a restart would not help (data missing, loss is NaN): the job ends with this
/// process.
void no_restart(std::string_view why);

/// May this process still publish results of its job: rename a checkpoint to its final name, move a
/// pointer to the newest one? Call it once the data is written, right before publishing it:
///  write(temporary); if (!acc::agent::is_current()) return;  // a later attempt has begun without
/// this process
///     std::filesystem::rename(temporary, checkpoint);
///
/// A machine can be frozen or paused for so long that the others begin the next attempt without it;
/// when it wakes up, its processes may run for a moment. So the answer comes from the job's
/// coordinator, which proves that it still is the coordinator. One case remains: a virtual machine
/// paused, with its clocks, while that answer is in transit. Takes a round trip; on one machine,
/// and without acc-launch (true), it returns immediately.
/// @param timeout  for a coordinator that is unreachable or being replaced
/// @throws runtime::Error  timed_out: no coordinator proved it; system: the agent is gone. Do not
///   publish then. invalid_argument: a negative timeout.
[[nodiscard]] bool is_current(std::chrono::milliseconds timeout = std::chrono::seconds{60});

/// Sends heartbeats from a thread, for programs with long steps, repeating the last step set. It
/// proves that the process runs, not that the training does; prefer heartbeat() where steps are
/// short.
class Heartbeat {
 public:
  /// @param every  at least 1 ms
  /// @throws runtime::Error  invalid_argument: a shorter interval; system: no thread can be
  /// started.
  explicit Heartbeat(std::chrono::milliseconds every = std::chrono::seconds{1});
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// The step to report from now on; no system call.
  void at(std::uint64_t step) noexcept;

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace acc::agent
