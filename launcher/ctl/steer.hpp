#pragma once

#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/job_list.hpp"

#include <nlohmann/json_fwd.hpp>

/// The verbs that change something. Each returns the exit code.
namespace acc::ctl {

/// stop, signal, restart, without a word to the terminal. What was done, or why it was not.
/// @param body  what the verb needs: {"signal": "SIGUSR1"}
[[nodiscard]] Failure order(const JobRow& job, const std::string& verb, nlohmann::json body);

/// stop, signal, restart. @param signo  of signal
int steer(const Invocation& call, const JobRow& job, int signo);
/// Its agents pass on to all nodes what one of them hears. A launch that stops already is asked on
/// all: the first may not hear.
int steer(const Invocation& call, const LaunchState& launch, int signo);
int remove(const JobRow& job);
int remove(const Invocation& call, const LaunchState& launch);
int drain(const Invocation& call);
/// A token for the port of acc-agent --http.
int make_token(const Invocation& call);

}  // namespace acc::ctl
