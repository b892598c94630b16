#pragma once

#include "agent/preload/preload_messages.hpp"
#include "common/duration.hpp"
#include "common/exit_status.hpp"

#include <cstdint>
#include <optional>
#include <string>

/// The life of a job's preloaders, one after the other: what is known of the present one, and what
/// follows from its messages, its end and the time (pure).
///
///   importing ──► ready ⇄ forking          importing: also before its interpreter runs
///       │           │        │
///       ▼           ▼        ▼
///      off    importing again, at most kReplacements times; then off
///
/// postponed: it ended with its node's lease, as all workers did. The next round starts another one,
/// and that is no replacement: a long job may lose any number of leases.
namespace acc::agent::preload {

class PreloadCourse {
 public:
  enum class Phase { off, importing, ready, forking, postponed };
  static constexpr std::uint32_t kReplacements = 3;

  /// What the caller is to do, besides telling the user what there is to tell.
  enum class Next {
    nothing,
    drop,     ///< end it: workers start cold from now on
    replace,  ///< end it and start another one
    postpone,  ///< end it; the next round starts another one
  };

  explicit PreloadCourse(Millis patience) : patience_{patience} {}

  /// A process was started.
  void begin(Instant now);
  /// No message that belongs to a round: those don't change its life.
  Next on(const Message& message);
  Next on_exit(const ExitStatus& status, const std::string& last_words);
  /// It could not be started, or can't serve this job: `why` follows "--preload: ".
  Next on_refused(std::string why);
  /// At the deadline of the imports.
  Next on_time_out();
  /// It sent what is no message, or its socket failed.
  Next on_nonsense();
  void begin_round() { phase_ = Phase::forking; }
  /// All workers of a round wait at the gate. It may have grown.
  Next end_round(std::uint64_t resident_bytes);
  /// The workers of a round couldn't be made.
  Next fail_round(std::string why);
  /// It ended with its node's lease, or couldn't be started because of it.
  Next on_lease_over();
  /// What was left of a start that was cancelled didn't end.
  Next fail_cancelled(const std::string& why);

  [[nodiscard]] Phase phase() const { return phase_; }
  /// Nobody needs to wait for it: it is ready, or won't be.
  [[nodiscard]] bool is_settled() const { return phase_ == Phase::ready || !has_process(); }
  /// Of which workers can be forked, now or later.
  [[nodiscard]] bool has_process() const {
    return phase_ != Phase::off && phase_ != Phase::postponed;
  }
  [[nodiscard]] Instant deadline() const { return began_ + patience_; }
  /// Of the present one, when it was ready.
  [[nodiscard]] std::uint64_t resident_bytes() const { return resident_bytes_; }
  /// What the user should read, once: why workers start cold, or why it is replaced.
  [[nodiscard]] std::optional<std::string> take_warning();
  /// "preloaded torch in 1.3 s", once in a job.
  [[nodiscard]] std::optional<std::string> take_note();

 private:
  Next off(std::string why);
  Next replace_or_off(const std::string& why);

  Millis patience_;
  Phase phase_ = Phase::off;
  Instant began_{};
  bool is_prepared_ = false;  ///< its interpreter runs our code
  std::string module_;        ///< that is being imported
  std::uint64_t resident_bytes_ = 0;
  std::uint32_t replaced_ = 0;
  bool was_ready_ = false;
  std::optional<std::string> warning_;
  std::optional<std::string> note_;
};

}  // namespace acc::agent::preload
