#pragma once

#include "launcher/ctl/command.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

/// What `acc-ctl submit` sends.
namespace acc::ctl {

/// The words as acc-launch would understand them here, tried before anything is submitted.
struct Planned {
  std::optional<int> refused;  ///< acc-launch's exit code; its messages were printed
  unsigned slots = 1;          ///< workers on this node
  std::string name;            ///< of the script, as a job's name
};
[[nodiscard]] Planned plan_words(const std::vector<std::string>& words);

/// "My Train.py" as "my-train": what the service takes for a name; empty if nothing is left.
[[nodiscard]] std::string job_name(std::string_view text);

/// The body of POST /v1/jobs, or what is wrong with --env.
[[nodiscard]] Result<std::string> submission(const Command& command, const Planned& planned);

}  // namespace acc::ctl
