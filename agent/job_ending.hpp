#pragma once

#include "agent/group_state.hpp"
#include "agent/output/output_options.hpp"
#include "agent/report.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace acc::agent {

class CoordinatedJob;
struct GuardianLink;
class JobCourse;
class JobRecorder;
class JobTelemetry;
class JobWatch;
class OutputHub;
class RoundStarter;
class RoundTerms;
class UserMessages;

/// How long the rest of the output is waited for at the end of a job (pure).
/// @param is_hurried  a signal asks for an end at once
/// @param is_stopped  the job was stopped by a signal: its user waits
/// @param patience  --output_patience
[[nodiscard]] FlushLimits limits_of_last_flush(bool is_hurried, bool is_stopped, Millis patience);

/// What a node of one launch over several hosts knows as the job ends for it.
struct EndHere {
  bool tells_job = false;     ///< the first host: what concerns the whole job is told there
  bool has_told_job = false;  ///< it was the coordinator's node before
  bool is_closed = false;     ///< by a coordinator, whose node tells it
  bool is_guardian_lost = false;
  std::uint32_t nodes = 0;  ///< of the last round
  Outcome outcome{};
};
/// Whether it tells how the job ended; rather several nodes than none (pure).
[[nodiscard]] bool tells_end(const EndHere& here);

/// The end of a job on this node: why it ends, the rest of its output, and its report.
class JobEnding {
 public:
  /// All outlive it: the agent owns them.
  struct Parts {
    const JobPlan& plan;
    std::string job_id;
    const GuardianLink& guardian;
    const GroupState& group;
    const RoundTerms& terms;
    const RoundStarter& starter;
    const JobRecorder& recorder;
    const JobWatch& watch;
    const UserMessages& messages;
    const JobCourse& course;
    JobTelemetry& telemetry;
    OutputHub& output;
    bool color = false;                  ///< in the report
    std::function<bool()> is_end_asked;  ///< by a signal since the loop has ended
  };
  explicit JobEnding(Parts parts) : parts_{std::move(parts)} {}

  /// The supervisor's last word.
  void decide(const End& end) { end_ = end; }
  [[nodiscard]] bool is_decided() const { return end_.has_value(); }
  /// Why this node ends without the coordinator.
  void set_reason(std::string why) { reason_ = std::move(why); }
  /// For the coordinator of a job that isn't over.
  [[nodiscard]] std::string words_for_others() const;

  /// While a job is being stopped, a destination that takes nothing holds up the workers no longer:
  /// their grace is for a checkpoint.
  void spare_stopping_workers();

  /// After the loop: brings out the rest of the output, writes the report and shows it. Blocks.
  /// @param job  null: on one node
  /// @return the exit code
  int conclude(const CoordinatedJob* job);

 private:
  [[nodiscard]] End end() const;
  [[nodiscard]] FlushLimits flush_limits() const;
  [[nodiscard]] bool is_told_here(const CoordinatedJob* job) const;
  [[nodiscard]] JobReport make_report(const CoordinatedJob* job) const;
  bool write(const JobReport& report) const;
  void hand_on_error(const JobReport& report) const;

  Parts parts_;
  std::optional<End> end_;
  std::string reason_;
};

}  // namespace acc::agent
