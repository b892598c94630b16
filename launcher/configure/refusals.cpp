#include "launcher/configure/refusals.hpp"

#include "launcher/configure/host_view.hpp"
#include "launcher/hosts_flags.hpp"
#include "launcher/key_table.hpp"
#include "launcher/merge.hpp"
#include "launcher/mode.hpp"
#include "launcher/plan.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace acc::configure {

using namespace launcher::literals;

Complaints refusals(const launcher::CommandLine& line, const std::string& path,
                    const launcher::Map& keys) {
  Complaints complaints;
  for (std::size_t i = 0; i < line.complaints.size(); ++i)
    if (std::ranges::find(line.foreign, i) == line.foreign.end())
      complaints.push_back(line.complaints[i]);
  std::optional<launcher::Config> config;
  if (!path.empty()) config = {path, keys, {}};
  const launcher::Environment environment;
  const auto facts = any_machine();
  auto merged = launcher::merge(line, config, *facts, environment);
  std::ranges::move(merged.complaints, std::back_inserter(complaints));
  if (line.given("tpu"_key) != nullptr) complaints.push_back({Errc::bad_config, launcher::kNoTpu});
  if (!complaints.empty() || launcher::is_on_hosts(line)) return complaints;
  auto planned = launcher::make_plan(merged.spec, *facts, {environment, "/", "python3"});
  return std::move(planned.complaints);
}

}  // namespace acc::configure
