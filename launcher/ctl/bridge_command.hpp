#pragma once

#include "common/error.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

/// The command line of `acc-ctl bridge`, which programs write (acc-launch --hosts; logs and attach
/// of acc-ctl for a job on several nodes) and nobody types; pure.
namespace acc::ctl {

/// What the command line says.
struct BridgeWish {
  std::string node;  ///< the node's name in the API; empty: the one of our own daemon
  std::string name;  ///< for messages
  std::string launch;
  unsigned nodes = 1;
  unsigned node_rank = 0;
  std::optional<unsigned> slots;  ///< nothing: the daemon counts the workers of `words`
  bool has_secret = false;  ///< the daemon derives the job's secret
  bool detaches = false;    ///< no output is copied; the order to leave is awaited
  std::string umask = "022";
  std::string user;  ///< whose job it is
  std::vector<std::string> words;
  std::string job;          ///< attach to this one; empty: submit one
  bool skips_old = false;   ///< attached: from now on
  bool is_away = false;     ///< attached: the node could not be asked just now, and is asked again
  bool only_looks = false;  ///< attached: the first Ctrl-C leaves the job
};

struct BridgeCommand {
  BridgeWish wish;     ///< but for the umask and the user, which the process has
  std::string socket;  ///< of our own daemon
};

/// @param words  behind the verb
/// @return bad_usage where a word has no meaning, or one that is needed is missing
[[nodiscard]] Result<BridgeCommand> parse_bridge_command(std::span<const std::string> words);

}  // namespace acc::ctl
