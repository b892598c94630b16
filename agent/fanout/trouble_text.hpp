#pragma once

#include "agent/fanout/fan_out.hpp"
#include "agent/fanout/orders.hpp"

#include <string>
#include <string_view>
#include <vector>

/// What a user reads of hosts that can't take part: each host by name, with what to do.
namespace acc::agent {

struct TransportWords {
  bool is_ssh = true;
  std::string program;  ///< "ssh", or the first word of --launch-agent
  std::string version;  ///< ours
  bool uses_daemons = false;
};

/// One host's, without its name.
[[nodiscard]] std::string describe(const HostTrouble& trouble, const std::string& host,
                                   const TransportWords& words);

/// The whole message, in the order of the hosts; those with the same trouble stand together.
[[nodiscard]] std::string describe_troubles(const FanOutState& state,
                                            const std::vector<std::string>& names,
                                            const TransportWords& words);

/// "b: ssh exited with code 255 (client_loop: send disconnect: Broken pipe)".
[[nodiscard]] std::string describe_lost(const TellLost& lost, const std::string& host,
                                        const TransportWords& words);

/// Of a host without which the job can't go on: "its part has ended with exit code 74 (unfit)".
[[nodiscard]] std::string why_missed(const FanOutHost& missed);
/// Why the job ends on the others: a host's part has ended for good.
[[nodiscard]] std::string describe_missed(const FanOutHost& missed, const std::string& host);

/// Output of a host that isn't here.
[[nodiscard]] std::string describe_loss(const OutputLost& loss, const std::string& host);

/// After the third Ctrl-C, or after the job's end on the other hosts.
[[nodiscard]] std::string describe_left(const TellLeft& told, const FanOutHost& left,
                                        const std::string& host, const TransportWords& words);

}  // namespace acc::agent
