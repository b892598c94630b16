#include "runtime/bootstrap/agent_store.hpp"
#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/form.hpp"
#include "runtime/bootstrap/tcp_store.hpp"

#include <acc/process_group.hpp>
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace acc::runtime {

namespace {

/// Groups of this process by from_environment: the same number on every rank, as all ranks call.
std::atomic<std::uint64_t> worlds{0};

/// An agent that is just starting thousands of workers answers late; one that ended closes the
/// line.
constexpr Millis kPatienceWithAgent{60'000};

std::shared_ptr<Store> open_store(const Contract& contract, const GroupOptions& options) {
  const auto limit = options.init_timeout.value_or(Millis{0});
  std::string why;
  if (!contract.agent_socket.empty()) {
    const auto patience =
        limit == Millis{0} ? kPatienceWithAgent : std::min(limit, kPatienceWithAgent);
    auto store = connect_agent_store(contract, patience);
    if (store) return *std::move(store);
    why = store.error().what;
    // A container with a network of its own doesn't reach the agent, and none of its ranks does.
    if (contract.master_address.empty()) throw Error{ErrorCode::system, why};
  }
  const auto deadline = limit == Millis{0} ? Deadline::max() : Clock::now() + limit;
  try {
    return open_tcp_store(place_of(contract), deadline);
  } catch (const Error& error) {
    if (why.empty()) throw;
    throw Error{error.code(), std::string{error.what()} + " (" + why + ")", error.ranks()};
  }
}

}  // namespace

ProcessGroup ProcessGroup::from_environment(Options options) {
  const auto lookup = environment();
  options = with_environment(std::move(options), lookup);
  const auto contract = read_contract(lookup);
  Formation formation;
  formation.rank = contract.rank;
  formation.size = contract.size;
  formation.options = options;
  if (contract.size > 1) {
    formation.store = open_store(contract, options);
    formation.key = "acc/" + std::to_string(contract.round.value_or(0)) + "/" +
                    std::to_string(worlds.fetch_add(1));
    formation.master_address = contract.master_address;
    if (!contract.agent_socket.empty()) {
      formation.agent_socket = contract.agent_socket;
      formation.job_rank = contract.rank;
    }
  }
  return ProcessGroup{form_group(std::move(formation))};
}

ProcessGroup ProcessGroup::single(Options options) {
  Formation formation;
  formation.options = with_environment(std::move(options), environment());
  return ProcessGroup{form_group(std::move(formation))};
}

std::vector<ProcessGroup> ProcessGroup::threads(int size, Options options) {
  if (size < 1)
    throw Error{ErrorCode::invalid_argument,
                "a group has at least one rank, not " + std::to_string(size)};
  options = with_environment(std::move(options), environment());
  const auto store = make_memory_store();
  std::vector<ProcessGroup> groups(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> forming;
  for (int rank = 0; rank < size; ++rank) {
    forming.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        Formation formation;
        formation.rank = rank;
        formation.size = size;
        formation.key = "threads";
        formation.store = store;
        formation.options = options;
        groups[at] = ProcessGroup{form_group(std::move(formation))};
      } catch (...) {
        failures[at] = std::current_exception();
      }
    });
  }
  for (auto& thread : forming) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return groups;
}

}  // namespace acc::runtime
