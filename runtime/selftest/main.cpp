#include "runtime/selftest/bandwidth.hpp"
#include "runtime/selftest/checks.hpp"
#include "runtime/selftest/network_check.hpp"
#include "runtime/selftest/probe.hpp"
#include "runtime/selftest/results.hpp"

#include <acc/process_group.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

/// The program that acc-test runs on every rank. Independent of acc-test: any launcher may start
/// it.
namespace acc::selftest {
namespace {

using namespace runtime;
using Clock = std::chrono::steady_clock;

struct Named {
  const char* name;
  std::string (*check)(ProcessGroup&);
};
constexpr Named kChecks[] = {{"ranks", check_rank_facts},      {"reductions", check_reductions},
                             {"moves", check_moves},           {"objects", check_objects},
                             {"sub-groups", check_sub_groups}, {"sharding", check_sharding},
                             {"metrics", check_metrics},       {"training", check_training},
                             {"checkpoint", check_checkpoint}, {"mismatch", check_mismatch},
                             {"timeout", check_timeout}};

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// The failure of a check on one rank; empty: it passed.
struct Complaint {
  std::string what;
  bool blames_teller = false;  ///< rank 0 can't report it: it is the rank that is stuck or gone
};

Complaint complaint_of(ProcessGroup& group, const Named& named, std::string& found) {
  try {
    found = named.check(group);
    return {};
  } catch (const runtime::Error& error) {
    return {error.what(), std::ranges::find(error.ranks(), 0) != error.ranks().end()};
  } catch (const std::exception& error) {
    return {error.what()};
  }
}

/// Runs a check on all ranks, which then agree on its result.
/// @param rank_0_reports  becomes false if it can't: it is the rank that is stuck or gone
Result run(ProcessGroup& group, const Named& named, bool& rank_0_reports) {
  const auto began = Clock::now();
  Result result;
  result.name = named.name;
  const auto complaint = complaint_of(group, named, result.found);
  if (group.broken()) {  // no way to ask the others
    result.ok = false;
    result.found = complaint.what.empty() ? "the group broke" : complaint.what;
    result.seconds = seconds_since(began);
    rank_0_reports = !complaint.blames_teller;
    if (complaint.blames_teller)
      std::fprintf(stderr, "acc-test: %s, reported by rank %d: %s\n", named.name, group.rank(),
                   complaint.what.c_str());
    return result;
  }
  const auto complaints = group.all_gather_object(complaint.what);
  for (std::size_t rank = 0; rank < complaints.size(); ++rank) {
    if (complaints[rank].empty()) continue;
    if (result.ok) result.found = "rank " + std::to_string(rank) + ": " + complaints[rank];
    result.ok = false;
  }
  result.seconds = seconds_since(began);
  return result;
}

/// Rank 0 reports why the group broke. The first exit makes the launcher stop the others, so the
/// other ranks wait to be stopped; a rank that isn't reports by itself.
void leave_report_to_rank_0(const ProcessGroup& group, const Result& result) {
  if (group.rank() == 0) return;
  constexpr std::chrono::seconds kLimit{5};
  std::this_thread::sleep_for(kLimit);
  std::fprintf(stderr, "acc-test: %s, reported by rank %d: %s\n", result.name.c_str(), group.rank(),
               result.found.c_str());
}

/// A failed check is no failure of the job: it is in the results, which acc-test reports. A broken
/// group is: a rank is stuck, and only the launcher can end it.
int run_checks(ProcessGroup& group, Results& results) {
  for (const auto& named : kChecks) {
    bool rank_0_reports = true;
    const auto result = run(group, named, rank_0_reports);
    results.tell(result);
    if (!group.broken()) continue;
    if (rank_0_reports) leave_report_to_rank_0(group, result);
    return 1;
  }
  return 0;
}

int run_worker(const std::vector<std::string>& words) {
  const auto given = [&](const char* word) {
    return std::ranges::find(words, word) != words.end();
  };
  BandwidthOptions bandwidth;
  const auto wrong = read_bandwidth_options(words, bandwidth);
  if (given("--only_options")) {  // acc-test asks before it starts a job with them
    std::printf("%s\n", wrong.empty() ? "good" : wrong.c_str());
    return 0;
  }
  if (!wrong.empty()) {
    std::fprintf(stderr, "acc-test: %s\n", wrong.c_str());
    return 2;
  }
  const auto style = given("--marked")   ? Style::marked
                     : given("--silent") ? Style::silent
                                         : Style::text;
  if (given("--network")) {
    NetworkOptions network;
    if (given("-T")) network.limit = bandwidth.timeout;
    const char* rank = std::getenv("RANK");
    Results results{rank != nullptr ? std::atoi(rank) : 0, style};
    return check_network(network, results);
  }
  GroupOptions options;
  options.timeout = bandwidth.timeout;
  const auto began = Clock::now();
  auto group = ProcessGroup::from_environment(options);
  const double joined = seconds_since(began);
  Results results{group, style};
  if (bandwidth.wanted) {
    measure_bandwidth(group, bandwidth, results);
    return 0;
  }
  results.print("         " + ranks_text(group) + ", backend " + std::string{group.backend()} +
                ", met in " + std::to_string(std::lround(joined * 1e3)) + " ms\n");
  return run_checks(group, results);
}

}  // namespace
}  // namespace acc::selftest

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (words.size() == 1 && words[0] == "--probe") return acc::selftest::probe();
  try {
    return acc::selftest::run_worker(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "acc-test: %s\n", error.what());
    return 1;
  }
}
