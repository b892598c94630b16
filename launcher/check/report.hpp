#pragma once

#include "agent/job_plan.hpp"
#include "common/duration.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "launcher/check/machine_checks.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace acc::check {

/// What acc-test tells its user: a line a check as it comes, a last line that says it all, and the
/// same as JSON. The ranks' results come through a file: one JSON object a line, written by the
/// program that the ranks run ({"name", "verdict", "found", "remedy", "seconds"}; with --bandwidth
/// the rows of the table).
class Report {
 public:
  bool quiet = false;  ///< JSON goes to standard output: nothing else may
  int output = 1;      ///< where lines go: standard output, or what it was before it was taken

  bool is_on_hosts = false;  ///< the machines are others, and tell by themselves

  /// Makes the file for the ranks' results and tells its name in ACC_TEST_RESULTS; looks whether
  /// `json_file` can be written, so that no test runs for nothing. Complains by itself.
  [[nodiscard]] bool open(const std::string& json_file, bool has_output);
  void begin(const agent::JobPlan& plan);
  void add_machine(std::vector<Check> checks);
  [[nodiscard]] bool machine_failed() const;
  void begin_ranks();

  /// With --hosts: a line of the ranks' output. What isn't behind a mark is printed as it is.
  void take_line(std::string_view line);
  [[nodiscard]] bool has_heard() const { return !hosts_.empty() || !results_.empty(); }

  /// No job was to be started. @return the exit code.
  [[nodiscard]] int finish_machine();
  /// @param code  of the job. @return the exit code of acc-test.
  [[nodiscard]] int finish(int code);

 private:
  void say(const std::string& text) const;
  void add_host(std::string_view told);
  [[nodiscard]] std::string counts() const;
  [[nodiscard]] std::vector<std::string> failures() const;
  [[nodiscard]] int conclude(bool well, const std::string& last_line, int code);
  [[nodiscard]] Result<void> write_json(bool well, const std::string& last_line, int code) const;
  [[nodiscard]] double seconds() const;

  std::string json_file_;
  UniqueFd results_file_;  ///< in memory: nothing stays behind, whatever becomes of us
  std::vector<Check> machine_;
  struct Host {
    std::string name;
    std::vector<Check> checks;
  };
  std::vector<Host> hosts_;           ///< of --hosts, as they told
  std::vector<std::string> results_;  ///< of the ranks, a JSON object each
  Instant started_ = std::chrono::steady_clock::now();
  std::uint32_t workers_ = 1;
  std::uint32_t nodes_ = 1;
};

}  // namespace acc::check
