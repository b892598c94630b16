#pragma once

#include "agent/evidence/evidence_run.hpp"
#include "agent/watch/hang_detector.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::agent {

class HeartbeatBoard;
class RunFolder;
class UserMessages;
class WorkerGroup;
struct WorkerRecord;

/// The stacks of this node's workers: one collection at a time, whose answer serves all who ask
/// meanwhile, saved in the first folder that takes it.
class StackCollection {
 public:
  using Evidence = std::vector<evidence::NodeEvidence>;
  using Collected = std::function<void(Result<evidence::Answer>)>;
  /// All outlive this.
  struct Parts {
    boost::asio::io_context& io;
    const WorkerGroup& workers;
    const UserMessages& messages;
    RunFolder& run_folder;
    std::string job_id;
    std::string node;
  };
  /// @param on_held  called after each collection: meanwhile debuggers held the workers
  StackCollection(const Parts& parts, std::function<void(Instant from, Instant to)> on_held);

  void round_started(const HeartbeatBoard& board, Round round);
  /// The collection that runs is ended, and those who wait for it are told.
  void round_ended();
  /// The workers are being stopped for a while: as round_ended(), but those that a debugger holds
  /// are left so.
  void suspended();

  struct Request {
    evidence::Question question;
    std::vector<SilentRank> silent{};
    std::vector<LocalRank> stuck{};
    Millis limit{kTime};
    bool is_kept = true;  ///< in a file
  };
  /// Of all workers here; an error where no round runs.
  void collect(const Request& wanted, Collected done);
  [[nodiscard]] bool is_running() const { return run_.is_running(); }
  /// Stacks of several nodes as one text, written to `file`.
  void write_together(const evidence::Question& question, Evidence nodes, std::vector<std::string> missing,
                      const std::string& file, Collected done);
  static constexpr Millis kTime{10'000};

 private:
  void cancel_waiting(const char* why);
  [[nodiscard]] evidence::Request request_for(const evidence::Question& question) const;
  [[nodiscard]] std::vector<std::string> next_files();
  void tell(const evidence::Answer& answer) const;

  Parts parts_;
  std::function<void(Instant, Instant)> on_held_;
  const HeartbeatBoard* board_ = nullptr;  ///< null: no round runs
  Round round_{0};
  evidence::EvidenceRun run_;
  std::vector<Collected> waiting_;  ///< for the collection that runs
  std::vector<std::unique_ptr<evidence::EvidenceRun>> together_;
  std::uint32_t files_ = 0;
};

/// Those that exited by themselves, with code 0 (pure).
[[nodiscard]] std::vector<evidence::FinishedRank> finished_ranks(
    const std::vector<WorkerRecord>& workers, Instant now);

/// The files for the stacks of a job that are the `number`th, in the order in which they are tried:
/// any folder may be full or closed (pure).
/// @param attempt_folder  with the logs of the round; empty: there are none
/// @param temporary  $TMPDIR; taken if it is absolute
[[nodiscard]] std::vector<std::string> stack_files(const std::string& attempt_folder,
                                                   const std::string& temporary,
                                                   const std::string& job_id, std::uint32_t number);

}  // namespace acc::agent
