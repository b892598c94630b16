#include "runtime/bootstrap/agent_store.hpp"
#include "runtime/bootstrap/launch_environment.hpp"
#include "runtime/bootstrap/manifest.hpp"
#include "runtime/bootstrap/rank_process.hpp"
#include "runtime/bootstrap/tcp_store.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/shm/segment.hpp"
#include "runtime/world/group_builder.hpp"

#include <unistd.h>

#include <acc/process_group.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <thread>

namespace acc::runtime {

namespace {

/// An agent that is starting thousands of workers answers late; one that has ended closes the
/// connection.
constexpr Millis kPatienceWithAgent{60'000};

constexpr const char* kThreadsKey = "threads";

std::shared_ptr<Store> open_store(const LaunchEnvironment& launch, const GroupOptions& options) {
  const auto limit = options.init_timeout.value_or(Millis{0});
  std::string why;
  if (!launch.agent_socket.empty()) {
    const auto patience =
        limit == Millis{0} ? kPatienceWithAgent : std::min(limit, kPatienceWithAgent);
    auto store = connect_agent_store(launch, patience);
    if (store) return *std::move(store);
    why = store.error().what;
    // In a container with a network of its own no rank reaches the agent.
    if (launch.master_address.empty()) throw Error{ErrorCode::system, why};
  }
  const auto deadline = limit == Millis{0} ? Deadline::max() : Clock::now() + limit;
  try {
    return job_store(place_of(launch), deadline);
  } catch (const Error& error) {
    if (why.empty()) throw;
    throw Error{error.code(), std::string{error.what()} + " (" + why + ")", error.ranks()};
  }
}

/// Key prefix of a group, unique in the job: the number of its process among those of its rank, and
/// of the group in the process. Counted in the store, since the C++ and C libraries may be loaded
/// together.
RankProcess count_group(Store& store, const LaunchEnvironment& launch) {
  const auto prefix = "acc/" + std::to_string(launch.round.value_or(0));
  RankProcess process{store, prefix, launch.rank};
  process.count_group();
  const auto other = process.running_predecessor();
  if (!other) return process;
  Member me;
  me.rank = launch.rank;
  me.pid = ::getpid();
  me.host = host_facts();
  const Error why{ErrorCode::invalid_argument,
                  "two processes are one rank: " + *other + " and " + describe(me)};
  report_failure(store, process.key(), me, why);
  throw why;
}

/// Why the others may not have joined a later process of this rank; empty: it is the first.
std::string hint_about_process(int number, const LaunchEnvironment& launch) {
  if (number == 0) return {};
  return "; this is process " + std::to_string(number + 1) + " of rank " +
         std::to_string(launch.rank) +
         " that forms groups in this attempt, and waits for as many of the others";
}

/// Why the others may not have found rank 0, for its error message; empty: unknown.
std::string hint_about_master(const LaunchEnvironment& launch) {
  const auto& master = launch.master_address;
  if (launch.rank != 0 || master.empty() || !launch.agent_socket.empty()) return {};
  const auto addresses = resolve(master, 0, Clock::now() + std::chrono::seconds{2});
  if (!addresses) return "; MASTER_ADDR=" + master + ", rank 0's: " + addresses.error().what;
  for (const auto& address : *addresses)
    if (is_own_address(address)) return {};
  return "; MASTER_ADDR=" + master + " is no address of " + host_facts().name +
         ", the host of rank 0: the others look for it there";
}

void tell_once(const std::string& note) {
  static std::atomic_flag told;
  if (!note.empty() && !told.test_and_set()) std::fprintf(stderr, "acc: note: %s\n", note.c_str());
}

bool has_gone(Store& store) {
  try {
    (void)store.peek("acc/present");
    return false;
  } catch (const Error&) {
    return true;
  }
}

ProcessGroup form(const LaunchEnvironment& launch, const GroupConfig& wanted) {
  auto config = wanted;
  int process = 0;
  if (launch.size > 1) {
    config.store = open_store(launch, config.options);
    const auto counted = count_group(*config.store, launch);
    config.key = counted.key();
    process = counted.number();
    config.master_address = launch.master_address;
    if (!launch.agent_socket.empty()) {
      config.agent_socket = launch.agent_socket;
      config.job_rank = launch.rank;
    }
  }
  try {
    return ProcessGroup{form_group(config)};
  } catch (const Error& error) {
    // The store was that of rank 0's previous process, which ended later than ours. Its next one
    // serves another.
    if (error.code() == ErrorCode::system && process > 0 && launch.rank != 0 &&
        has_gone(*config.store))
      return form(launch, wanted);
    if (error.code() != ErrorCode::timed_out) throw;
    const auto hint = hint_about_process(process, launch) + hint_about_master(launch);
    if (hint.empty()) throw;
    throw Error{error.code(), error.what() + hint, error.ranks()};
  }
}

}  // namespace

ProcessGroup ProcessGroup::from_environment(Options options) {
  const auto lookup = environment();
  options = with_environment(std::move(options), lookup);
  const auto launch = read_launch_environment(lookup);
  tell_once(launch.note);
  GroupConfig config;
  config.rank = launch.rank;
  config.size = launch.size;
  config.options = std::move(options);
  return form(launch, config);
}

ProcessGroup ProcessGroup::single(Options options) {
  GroupConfig config;
  config.options = with_environment(std::move(options), environment());
  return ProcessGroup{form_group(std::move(config))};
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
          GroupConfig config;
          config.rank = rank;
          config.size = size;
          config.key = kThreadsKey;
          config.store = store;
          config.options = options;
          groups[at] = ProcessGroup{form_group(std::move(config))};
        } catch (...) {
          failures[at] = std::current_exception();
        }
      }));
    } catch (const Error& error) {  // the threads already running wait for this rank
      not_started = std::make_exception_ptr(error);
      Member missing;
      missing.rank = rank;
      report_failure(*store, kThreadsKey, missing, error);
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
