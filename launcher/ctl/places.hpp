#pragma once

#include "common/control_folders.hpp"
#include "launcher/ctl/job_list.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Where services and agents listen, and the jobs that they name.
namespace acc::ctl {

inline constexpr std::string_view kStartsIt =
    "'systemctl start acc-agent' starts it, or 'acc-agent' one for your own jobs";

/// The one that was named (--socket, ACC_AGENT_SOCKET), or the places where there may be one.
struct Services {
  std::vector<std::string> sockets;
  bool is_named = false;
  /// Of them, those in a home: where nothing listens at one, it is left of another boot or node.
  std::vector<std::string> in_homes{};
};
[[nodiscard]] Services find_services(const std::string& flag);

/// Jobs of plain acc-launch: *.sock in all places of common/control_folders. Sockets of agents that
/// were killed are removed.
struct PlainJobs {
  std::vector<JobRow> jobs;
  std::string unseen;  ///< why there may be others; empty: there is no reason to think so
};
[[nodiscard]] PlainJobs jobs_of_agents(const std::vector<ControlFolder>& places,
                                       std::int64_t now_ms);

/// `at`: "/v1/nodes/b", of another node alone; empty: of this one.
struct AllJobs {
  std::vector<JobRow> jobs;
  std::vector<std::string> answered;  ///< sockets of services
  /// Of a service that did not answer: of one that is there before one that runs no longer, and of
  /// that before a place without a socket.
  std::optional<Error> error;
  std::vector<std::string> dead{};  ///< sockets at which nothing listens, but those in homes
  std::string unseen;               ///< as PlainJobs
};
[[nodiscard]] AllJobs find_jobs(const Services& services, std::int64_t now_ms,
                                const std::string& at = {});
/// Whether this error means that no acc-agent runs at that place, which is none by itself: no
/// socket is there, or in a home one of another boot or node.
[[nodiscard]] bool is_away(const Services& services, const std::string& socket, const Error& error);
/// The message of a service that did not answer: with its cure, where none runs.
[[nodiscard]] std::string unanswered(const Services& services, const Error& error);
/// The acc-agent of this socket was killed, and what can be done about it.
[[nodiscard]] std::string left_by_dead(const std::string& socket);
/// A service that runs gave no list of its jobs, or no service did though one has a socket, was
/// named or is needed for another node: the list lacks jobs, and one that isn't found may be its
/// own.
[[nodiscard]] bool is_service_missed(const Services& services, const AllJobs& all,
                                     const std::string& at);

}  // namespace acc::ctl
