#pragma once

#include "agent/evidence/held_processes.hpp"
#include "agent/evidence/rank_evidence.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <string>

namespace acc::agent::evidence {

/// The agent's side of a collection: starts the collecting process, waits for its answer under a
/// deadline, and ends it. One at a time.
class EvidenceRun {
 public:
  /// The answer, or why there is none.
  using Done = std::function<void(Result<Answer>)>;

  explicit EvidenceRun(boost::asio::io_context& io);
  ~EvidenceRun();
  EvidenceRun(const EvidenceRun&) = delete;
  EvidenceRun& operator=(const EvidenceRun&) = delete;

  [[nodiscard]] bool is_running() const { return static_cast<bool>(done_); }
  /// @param page  descriptor of the page of heartbeats; -1: there is none
  void start(const Request& request, int page, Done done);
  /// Ends the process; `done` isn't called. Workers that it held go on.
  void cancel();
  /// As that, but they are to be stopped now: they are left so.
  void cancel_for_stop();

 private:
  void take_in();
  void finish(Result<Answer> answer);
  void end_process();
  void let_go();

  boost::asio::posix::stream_descriptor out_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer look_;  ///< at the workers that were held
  HeldProcesses held_;
  Instant let_go_until_{};
  int quiet_ = 0;     ///< looks in a row in which all ran
  UniqueFd process_;  ///< a pidfd: it may be reaped before we end it
  std::string text_;
  Done done_;
  Alive alive_;
};

}  // namespace acc::agent::evidence
