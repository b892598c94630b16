#include "runtime/bootstrap/agent_store.hpp"
#include "runtime/bootstrap/contract.hpp"
#include "runtime/bootstrap/form.hpp"
#include "runtime/bootstrap/quiet_thread.hpp"
#include "runtime/bootstrap/roll.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/bootstrap/tcp_store_server.hpp"
#include "runtime/shm/segment.hpp"

#include <acc/process_group.hpp>
#include <algorithm>
#include <exception>
#include <thread>

namespace acc::runtime {

namespace {

/// An agent that is just starting thousands of workers answers late; one that ended closes the
/// line.
constexpr Millis kPatienceWithAgent{60'000};

constexpr const char* kThreadsKey = "threads";

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
    return job_store(place_of(contract), deadline);
  } catch (const Error& error) {
    if (why.empty()) throw;
    throw Error{error.code(), std::string{error.what()} + " (" + why + ")", error.ranks()};
  }
}

/// A prefix that no other group of the job has: the how many-th group of this process it is, as all
/// ranks call. Counted in the store, since C++ and C may be two libraries in one program.
std::string next_key(Store& store, const Contract& contract) {
  const auto round = "acc/" + std::to_string(contract.round.value_or(0));
  const auto number = store.add(round + "/made/" + this_process(contract.rank).process, 1);
  return round + "/" + std::to_string(number - 1);
}

/// What rank 0 can say of a place where the others didn't find it; empty: nothing.
std::string doubt_about_master(const Contract& contract) {
  const auto& master = contract.master_address;
  if (contract.rank != 0 || master.empty() || !contract.agent_socket.empty()) return {};
  const auto addresses = resolve(master, 0, Clock::now() + std::chrono::seconds{2});
  if (!addresses) return "; MASTER_ADDR=" + master + ", rank 0's: " + addresses.error().what;
  for (const auto& address : *addresses)
    if (is_own_address(address)) return {};
  return "; MASTER_ADDR=" + master + " is no address of " + host_facts().name +
         ", the host of rank 0: the others look for it there";
}

ProcessGroup form(const Contract& contract, Formation formation) {
  if (contract.size > 1) {
    formation.store = open_store(contract, formation.options);
    formation.key = next_key(*formation.store, contract);
    formation.master_address = contract.master_address;
    if (!contract.agent_socket.empty()) {
      formation.agent_socket = contract.agent_socket;
      formation.job_rank = contract.rank;
    }
  }
  try {
    return ProcessGroup{form_group(std::move(formation))};
  } catch (const Error& error) {
    const auto doubt = error.code() == ErrorCode::timed_out ? doubt_about_master(contract) : "";
    if (doubt.empty()) throw;
    throw Error{error.code(), error.what() + doubt, error.ranks()};
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
  formation.options = std::move(options);
  return form(contract, std::move(formation));
}

ProcessGroup ProcessGroup::single(Options options) {
  Formation formation;
  formation.options = with_environment(std::move(options), environment());
  return ProcessGroup{form_group(std::move(formation))};
}

std::vector<ProcessGroup> ProcessGroup::threads(int size, Options options) {
  if (size < 1 || size > shm::kMaxRanks)
    throw Error{ErrorCode::invalid_argument, "a group of threads has 1 to " +
                                                 std::to_string(shm::kMaxRanks) + " ranks, not " +
                                                 std::to_string(size)};
  options = with_environment(std::move(options), environment());
  const auto store = make_memory_store();
  std::vector<ProcessGroup> groups(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> failures(groups.size());
  std::exception_ptr not_started;
  std::vector<std::thread> forming;
  forming.reserve(groups.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      forming.push_back(quiet_thread([&, rank, at] {
        try {
          Formation formation;
          formation.rank = rank;
          formation.size = size;
          formation.key = kThreadsKey;
          formation.store = store;
          formation.options = options;
          groups[at] = ProcessGroup{form_group(std::move(formation))};
        } catch (...) {
          failures[at] = std::current_exception();
        }
      }));
    } catch (const Error& error) {  // those that run wait for this rank
      not_started = std::make_exception_ptr(error);
      Member missing;
      missing.rank = rank;
      excuse(*store, kThreadsKey, missing, error);
      break;
    }
  }
  for (auto& thread : forming) thread.join();
  if (not_started) std::rethrow_exception(not_started);
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return groups;
}

}  // namespace acc::runtime
