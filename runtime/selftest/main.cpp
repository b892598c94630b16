#include "runtime/selftest/bandwidth.hpp"
#include "runtime/selftest/checks.hpp"
#include "runtime/selftest/probe.hpp"
#include "runtime/selftest/results.hpp"

#include <acc/process_group.hpp>
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

/// A stuck check is to be told within a coffee's time.
constexpr Millis kPatience{30'000};

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
std::string complaint_of(ProcessGroup& group, const Named& named, std::string& found) {
  try {
    found = named.check(group);
    return {};
  } catch (const std::exception& error) {
    return error.what();
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
    result.found = complaint.empty() ? "the group broke" : complaint;
    result.seconds = seconds_since(began);
    return result;
  }
  const auto complaints = group.all_gather_object(complaint);
  for (std::size_t rank = 0; rank < complaints.size(); ++rank) {
    if (complaints[rank].empty()) continue;
    if (result.ok) result.found = "rank " + std::to_string(rank) + ": " + complaints[rank];
    result.ok = false;
  }
  result.seconds = seconds_since(began);
  return result;
}

int run_checks(ProcessGroup& group, Results& results) {
  for (const auto& named : kChecks) {
    results.tell(run(group, named));
    if (group.broken()) return 1;
  }
  return results.failed() > 0 ? 1 : 0;
}

int run_worker(const std::vector<std::string>& words) {
  bool silent = false;
  BandwidthOptions bandwidth;
  for (const auto& word : words) silent = silent || word == "--silent";
  const auto wrong = read_bandwidth_options(words, bandwidth);
  if (!wrong.empty()) {
    std::fprintf(stderr, "acc-test: %s\n", wrong.c_str());
    return 2;
  }
  GroupOptions options;
  options.timeout = bandwidth.wanted ? bandwidth.timeout : kPatience;
  const auto began = Clock::now();
  auto group = ProcessGroup::from_environment(options);
  const double joined = seconds_since(began);
  Results results{group, silent};
  if (bandwidth.wanted) return measure_bandwidth(group, bandwidth, results);
  results.print("         " + std::to_string(group.size()) + " ranks, backend " +
                std::string{group.backend()} + ", met in " +
                std::to_string(static_cast<int>(joined * 1e3 + 0.5)) + " ms\n");
  return run_checks(group, results);
}

}  // namespace
}  // namespace acc::selftest

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (words.size() == 1 && words[0] == "--probe") return acc::selftest::probe();
  try {
    // The verdicts are in the results: a failed check is no failure of the job, acc-test tells it.
    const int code = acc::selftest::run_worker(words);
    return code == 2 ? 2 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "acc-test: %s\n", error.what());
    return 1;
  }
}
