#pragma once

#include "agent/fanout/orders.hpp"
#include "launcher/ctl/job_list.hpp"

#include <optional>
#include <string>
#include <vector>

/// What the daemon's answers to a bridge mean: a job's id, its state and end, or a refusal with its
/// sentence and exit code; pure. What answers is foreign: a field of another kind counts as absent.
namespace acc::ctl {

// ---- refusals ----
/// One line: what the daemon says, and what to do where that isn't in it.
[[nodiscard]] std::string refusal_text(unsigned status, const std::string& body);
/// As acc-launch's exit codes, or kNoRoomExit; kAwayExit is one of them.
[[nodiscard]] int code_of_refusal(unsigned status, const std::string& body);
/// Its daemon gives no answer now, starts or shuts down, or has too many requests.
[[nodiscard]] bool is_away(unsigned status, const std::string& body);
/// It is its daemon that answers, and has no place for the request.
[[nodiscard]] bool is_there_but_full(unsigned status, const std::string& body);
/// The node was asked, and gave no answer in time.
[[nodiscard]] bool is_unheard(unsigned status, const std::string& body);
/// It is being carried out, and takes longer than the daemon waits.
[[nodiscard]] bool is_still_in_progress(unsigned status, const std::string& body);
/// The request may have been carried out all the same.
[[nodiscard]] bool is_uncertain(unsigned status, const std::string& body);

// ---- a submission ----
/// Of one that was only checked.
[[nodiscard]] agent::Prepared prepared_by(const std::string& body);
/// The id of the job that was made; empty: none was.
[[nodiscard]] std::string submitted_job(unsigned status, const std::string& body);
/// The id of this user's job with this name in a list of jobs; empty: there is none. One that was
/// stopped doesn't count: it is of a former try of a launch that waits for room.
[[nodiscard]] std::string listed_job(unsigned status, const std::string& body,
                                     const std::string& name, const std::string& user);

// ---- a job ----
/// Of a request to stop it or to pass a signal on: it took that, or has ended and needs none.
[[nodiscard]] bool is_heard(unsigned status);
/// Nothing if the answer isn't a job.
[[nodiscard]] std::optional<JobRow> job_answered(unsigned status, const std::string& body);
/// The exit code of one that is over.
[[nodiscard]] int code_of_end(const JobRow& job);
/// What its report says was lost of the output. The job's agent reported that on its standard
/// error, too: a file that the same full disk may have cut.
[[nodiscard]] std::vector<agent::OutputLost> losses_of(const std::string& body);
/// What its report says of why it could not begin; empty: nothing. One line.
[[nodiscard]] std::string start_failure_of(const std::string& body);
/// Why what a running job writes to its standard output or error isn't kept at present; empty: it
/// is. Its agent can't tell it there.
[[nodiscard]] std::string output_refusal_of(const std::string& body);

}  // namespace acc::ctl
