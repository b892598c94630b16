#pragma once

#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/outcome.hpp"
#include "launcher/ctl/wire.hpp"

#include <functional>
#include <optional>
#include <string>

namespace acc::ctl {

/// What a follower of a job's output does at Ctrl-C.
enum class OnInterrupt {
  leave,           ///< ends, the job goes on
  stop_then_leave  ///< the first asks the job to stop, the second leaves it
};

/// What it does at SIGTERM, which the end of a session may send.
enum class OnTerm { as_interrupt, leave };

/// How a follower ended.
struct Followed {
  enum class How { job_ended, interrupted, output_closed, lost } how = How::lost;
  std::optional<int> exit_code;  ///< the job's, or 128 and the signal that interrupted
  std::string state;             ///< the job's
  std::string reason;            ///< the job's; or why the connection is lost
  CtlExit lost_by = CtlExit::no_service;  ///< of a stream that is lost, or was refused
  int stopped_by = 0;  ///< the signal at which this process asked the job to stop; 0: it didn't
};

struct FollowWish {
  std::string query{};  ///< behind "follow=1": "&rank=0"
  OnInterrupt on_interrupt = OnInterrupt::leave;
  OnTerm on_term = OnTerm::as_interrupt;
  bool is_escaped = false;  ///< another user's output shall not steer this terminal
};

/// Copies a job's output to ours, each stream to its own, until the job has ended. A connection
/// that is lost (the service is restarted) is made again, from the last byte that came, for a
/// minute.
[[nodiscard]] Followed follow_output(const JobRow& job, const FollowWish& wish);

/// Prints each event as it comes, until Ctrl-C; the same for lost connections.
using OnEvent = std::function<bool(const std::string& data)>;  ///< false: ends
[[nodiscard]] Followed follow_events(const std::string& socket, const OnEvent& on_event);

}  // namespace acc::ctl
