#include "hosted_groups.hpp"

#include <exception>
#include <thread>

namespace acc::testing {

using namespace acc::runtime;
using namespace std::chrono_literals;

std::vector<ProcessGroup> hosted_groups(const std::string& layout, GroupOptions options) {
  options.backend = BackendKind::cpu;
  if (!options.init_timeout) options.init_timeout = 20s;
  if (!options.timeout) options.timeout = 20s;
  const auto store = make_memory_store();
  std::vector<ProcessGroup> groups(layout.size());
  std::vector<std::exception_ptr> failures(layout.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < layout.size(); ++r) {
    threads.emplace_back([&, r] {
      Formation mine;
      mine.rank = static_cast<int>(r);
      mine.size = static_cast<int>(layout.size());
      mine.key = "hosted";
      mine.store = store;
      mine.options = options;
      mine.master_address = "127.0.0.1";
      const std::string host(1, layout[r]);
      mine.host = HostFacts{"key of " + host, host, "one network"};
      try {
        groups[r] = ProcessGroup{form_group(std::move(mine))};
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return groups;
}

std::vector<std::string> on_ranks(std::vector<ProcessGroup>& groups,
                                  const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> said(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(groups[r]);
        said[r] = "well";
      } catch (const Error& error) {
        said[r] = std::string{to_string(error.code())} + ": " + error.what();
      } catch (const std::exception& error) {
        said[r] = std::string{"other: "} + error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return said;
}

}  // namespace acc::testing
