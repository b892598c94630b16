#include "runtime/selftest/bandwidth.hpp"
#include "runtime/selftest/checks.hpp"
#include "runtime/selftest/probe.hpp"
#include "runtime/selftest/results.hpp"

#include <acc/process_group.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

/// The program that acc-test runs on every rank. It knows nothing of acc-test: any launcher may
/// start it.
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

/// What one rank has to say about a check: nothing if it went well.
struct Complaint {
  std::string what;
  bool blames_teller = false;  ///< rank 0 can't tell it: it is the one that is stuck or gone
};

Complaint complaint_of(ProcessGroup& group, const Named& named, std::string& found) {
  try {
    found = named.check(group);
    return {};
  } catch (const Error& error) {
    return {error.what(), std::ranges::find(error.ranks(), 0) != error.ranks().end()};
  } catch (const std::exception& error) {
    return {error.what()};
  }
}

/// Runs a check on all ranks and lets them agree on how it went.
Result run(ProcessGroup& group, const Named& named) {
  const auto began = Clock::now();
  Result result;
  result.name = named.name;
  const auto complaint = complaint_of(group, named, result.found);
  if (group.broken()) {  // no way to ask the others
    result.ok = false;
    result.found = complaint.what.empty() ? "the group broke" : complaint.what;
    result.seconds = seconds_since(began);
    if (complaint.blames_teller)
      std::fprintf(stderr, "acc-test: %s, told by rank %d: %s\n", named.name, group.rank(),
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

/// A failed check is no failure of the job: its verdict is in the results, and acc-test tells it. A
/// broken group is: somebody is stuck, and won't end unless the launcher ends it.
int run_checks(ProcessGroup& group, Results& results) {
  for (const auto& named : kChecks) {
    results.tell(run(group, named));
    if (group.broken()) return 1;
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
  GroupOptions options;
  options.timeout = bandwidth.timeout;
  const auto began = Clock::now();
  auto group = ProcessGroup::from_environment(options);
  const double joined = seconds_since(began);
  Results results{group, given("--silent")};
  if (bandwidth.wanted) {
    measure_bandwidth(group, bandwidth, results);
    return 0;
  }
  results.print("         " + ranks_text(group) + ", backend " + std::string{group.backend()} +
                ", met in " + std::to_string(static_cast<int>(joined * 1e3 + 0.5)) + " ms\n");
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
