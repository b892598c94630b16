#include "launcher/hosts_json.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>

namespace acc::launcher {

std::string hosts_to_json(const PlannedHosts& planned) {
  using Json = nlohmann::ordered_json;
  const auto& launch = planned.launch;
  Json out;
  out["transport"] = launch.transport;
  out["folder"] = launch.folder;
  out["env"] = Json::array();
  for (const auto& variable : launch.variables) out["env"].push_back(variable.name);
  if (launch.uses_daemons) out["id"] = launch.id;
  out["secret"] = launch.uses_daemons   ? "of the daemons"
                  : launch.sends_secret ? "a fresh one, over standard input"
                                        : "none of this job";
  out["hosts"] = Json::array();
  for (std::size_t i = 0; i < launch.hosts.size(); ++i) {
    const auto& workers = planned.workers[i];
    out["hosts"].push_back({{"host", launch.hosts[i].name},
                            {"node_rank", i},
                            {"workers", workers ? Json(*workers) : Json{}},
                            {"command", launch.hosts[i].command}});
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace acc::launcher
