#pragma once

#include "common/error.hpp"
#include "launcher/host_list.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// Which of mpirun's hosts get how many workers.
namespace acc::configure {

struct MpirunCounts {
  std::int64_t workers = 0;     ///< of the whole job; 0: not told
  std::int64_t per_host = 0;    ///< 0: not told
  bool oversubscribes = false;  ///< more workers than slots are wanted
  bool is_by_node = false;      ///< one worker on each host in turn, not host after host
};

struct MpirunHosts {
  std::vector<std::string> flags;  ///< of acc-launch
  std::int64_t workers = 0;        ///< of the whole job
  std::vector<std::string> notes;
};

/// @param flags  --hosts or --hostfile with the value of the line, which are kept where acc-launch
/// shares out the workers as mpirun does
[[nodiscard]] Result<MpirunHosts> share_as_mpirun(const std::vector<launcher::Host>& hosts,
                                                  const MpirunCounts& counts,
                                                  std::vector<std::string> flags);

}  // namespace acc::configure
