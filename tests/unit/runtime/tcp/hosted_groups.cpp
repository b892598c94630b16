#include "hosted_groups.hpp"

#include "tests/support/rank_threads.hpp"

namespace acc::testing {

using namespace acc::runtime;
using namespace std::chrono_literals;

std::vector<ProcessGroup> hosted_groups(const std::string& layout, GroupOptions options) {
  options.backend = BackendKind::cpu;
  if (!options.init_timeout) options.init_timeout = 20s;
  if (!options.timeout) options.timeout = 20s;
  const auto store = make_memory_store();
  std::vector<ProcessGroup> groups(layout.size());
  rethrow_first(on_rank_threads(layout.size(), [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    GroupConfig mine;
    mine.rank = rank;
    mine.size = static_cast<int>(layout.size());
    mine.key = "hosted";
    mine.store = store;
    mine.options = options;
    mine.master_address = "127.0.0.1";
    const std::string host(1, layout[r]);
    mine.host = HostFacts{"key of " + host, host, "one network"};
    groups[r] = ProcessGroup{form_group(std::move(mine))};
  }));
  return groups;
}

std::vector<std::string> on_ranks(std::vector<ProcessGroup>& groups,
                                  const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> said(groups.size(), "well");
  const auto thrown = on_rank_threads(
      groups.size(), [&](int rank) { body(groups[static_cast<std::size_t>(rank)]); });
  for (std::size_t r = 0; r < thrown.size(); ++r) {
    try {
      if (thrown[r]) std::rethrow_exception(thrown[r]);
    } catch (const Error& error) {
      said[r] = std::string{to_string(error.code())} + ": " + error.what();
    } catch (const std::exception& error) {
      said[r] = std::string{"other: "} + error.what();
    }
  }
  return said;
}

}  // namespace acc::testing
