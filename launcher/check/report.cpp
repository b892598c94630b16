#include "launcher/check/report.hpp"

#include "common/exit_codes.hpp"
#include "common/foreign_file.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace acc::check {
namespace {

using nlohmann::json;

json as_json(const Check& check) {
  return {{"name", check.name},
          {"verdict", to_string(check.verdict)},
          {"found", check.found},
          {"remedy", check.remedy}};
}

std::string counted(std::size_t number, const std::string& one, const std::string& many) {
  return std::to_string(number) + " " + (number == 1 ? one : many);
}

/// For our workers: they run as we do, and we live as long as they.
std::string path_of(const UniqueFd& file) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
}

std::size_t count(const std::vector<Check>& checks, Verdict verdict) {
  return static_cast<std::size_t>(std::ranges::count(checks, verdict, &Check::verdict));
}

}  // namespace

bool Report::open(const std::string& json_file, bool has_output) {
  const auto refuse = [](int error, const std::string& what) {
    std::fprintf(stderr, "acc-test: %s\n", system_error(error, what).what.c_str());
    return false;
  };
  json_file_ = json_file;
  if (quiet && !has_output) return refuse(EBADF, "write to the standard output");
  if (!quiet && holds_other_text(json_file, "{")) {
    std::fprintf(stderr,
                 "acc-test: --json: '%s' holds something else than results, and is left as it is\n",
                 printable(json_file).c_str());
    return false;
  }
  if (!quiet && !json_file.empty()) {
    const UniqueFd file{::open(json_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)};
    if (!file) return refuse(errno, "write '" + printable(json_file) + "'");
  }
  results_file_.reset(::memfd_create("acc-test-results", MFD_CLOEXEC));
  if (!results_file_) return refuse(errno, "make a file in memory for the results");
  ::setenv("ACC_TEST_RESULTS", path_of(results_file_).c_str(), 1);
  return true;
}

void Report::say(const std::string& text) const {
  if (quiet) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Report::begin(const agent::JobPlan& plan) {
  workers_ = plan.world_size.value();
  nodes_ = plan.cluster.several() ? plan.cluster.nodes_max : 1;
  say("acc-test: this machine\n");
}

void Report::add_machine(std::vector<Check> checks) {
  for (const auto& check : checks) say(to_text(check));
  machine_ = std::move(checks);
}

bool Report::machine_failed() const { return count(machine_, Verdict::failed) > 0; }

void Report::begin_ranks() {
  say("acc-test: " + counted(workers_, "rank", "ranks") +
      (nodes_ > 1 ? " on " + std::to_string(nodes_) + " machines" : "") + "\n");
}

int Report::finish_machine() {
  const auto failed = count(machine_, Verdict::failed);
  const auto warned = count(machine_, Verdict::warning);
  const auto of = counted(machine_.size(), "check", "checks") + " of this machine";
  if (failed > 0)
    return conclude(false, "FAILED: " + std::to_string(failed) + " of " + of,
                    to_int(ExitCode::failure));
  return conclude(true, "all is well: " + of + ", " + counted(warned, "warning", "warnings"), 0);
}

int Report::finish(int code) {
  std::ifstream file{path_of(results_file_)};
  std::vector<std::string> failed;
  for (std::string line; std::getline(file, line);) {
    const auto result = json::parse(line, nullptr, false);
    if (!result.is_object()) continue;  // its writer was killed in the middle of it
    results_.push_back(line);
    if (result.value("verdict", "") == "failed") failed.push_back(result.value("name", "?"));
  }
  for (const auto& check : machine_)
    if (check.verdict == Verdict::failed) failed.push_back(check.name);
  const auto of = counted(machine_.size(), "check", "checks") + " of this machine, " +
                  counted(results_.size(), "check", "checks") + " with " +
                  counted(workers_, "rank", "ranks");
  if (!failed.empty())
    return conclude(false, "FAILED: " + join(failed, ", ") + " (" + of + ")",
                    code != 0 ? code : to_int(ExitCode::failure));
  if (code != 0)
    return conclude(
        false, "FAILED: the job ended with exit code " + std::to_string(code) + ", after " + of,
        code);
  if (results_.empty())
    return conclude(false, "FAILED: the ranks told nothing", to_int(ExitCode::failure));
  return conclude(true, "all is well: " + of, 0);
}

double Report::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

bool Report::write_json(bool well, const std::string& last_line, int code) const {
  json all{{"ok", well},
           {"exit_code", code},
           {"ranks", workers_},
           {"nodes", nodes_},
           {"seconds", seconds()},
           {"said", last_line},
           {"machine", json::array()},
           {"results", json::array()}};
  for (const auto& check : machine_) all["machine"].push_back(as_json(check));
  for (const auto& line : results_) all["results"].push_back(json::parse(line, nullptr, false));
  const auto text = all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  if (quiet) return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  std::ofstream file{json_file_};
  return static_cast<bool>(file << text << std::flush);
}

int Report::conclude(bool well, const std::string& last_line, int code) {
  char time[32];
  std::snprintf(time, sizeof time, ", %.1f s", seconds());
  const auto line = "acc-test: " + last_line + time + "\n";
  const bool told = !quiet && std::fputs(line.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!told) std::fputs(line.c_str(), stderr);
  if (json_file_.empty() || write_json(well, last_line, code)) return code;
  std::fprintf(stderr, "acc-test: %s\n",
               system_error(errno, "write '" + printable(json_file_) + "'").what.c_str());
  return to_int(ExitCode::output);
}

}  // namespace acc::check
