#include "launcher/check/report.hpp"

#include "agent/small_file.hpp"
#include "common/exit_codes.hpp"
#include "common/foreign_file.hpp"
#include "common/text.hpp"
#include "launcher/check/marked_lines.hpp"
#include "launcher/output_paths.hpp"

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
    if (const int why = launcher::why_no_file(json_file); why != 0)
      return refuse(why, "write '" + printable(json_file) + "'");
  }
  results_file_.reset(::memfd_create("acc-test-results", MFD_CLOEXEC));
  if (!results_file_) return refuse(errno, "make a file in memory for the results");
  ::setenv("ACC_TEST_RESULTS", path_of(results_file_).c_str(), 1);
  return true;
}

void Report::say(const std::string& text) const {
  if (quiet) return;
  std::fflush(stdout);
  for (std::size_t done = 0; done < text.size();) {
    const auto n = ::write(output, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a reader that has seen enough; the last line tells by itself
    done += static_cast<std::size_t>(n);
  }
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

void Report::take_line(std::string_view line) {
  const auto marked = read_marked_line(line);
  const std::string content{marked.content};
  switch (marked.kind) {
    case MarkedLine::Kind::machine:
      return add_host(content);
    case MarkedLine::Kind::result:
      if (json::parse(content, nullptr, false).is_object()) results_.push_back(content);
      return;
    case MarkedLine::Kind::text:
    case MarkedLine::Kind::plain:
      say(content + "\n");
  }
}

/// A machine of --hosts: one line if all is well, and what isn't.
void Report::add_host(std::string_view told) {
  const auto all = json::parse(told, nullptr, false);
  if (!all.is_object() || !all.contains("checks") || !all["checks"].is_array()) return;
  Host host{all.value("host", "?"), {}};
  for (const auto& one : all["checks"])
    if (auto check = check_of(one)) host.checks.push_back(std::move(*check));
  const auto ranks = all.value("ranks", 1U);
  workers_ = hosts_.empty() ? ranks : workers_ + ranks;
  const auto failed = count(host.checks, Verdict::failed);
  const auto warned = count(host.checks, Verdict::warning);
  say(to_text({printable(host.name),
               failed > 0   ? Verdict::failed
               : warned > 0 ? Verdict::warning
                            : Verdict::ok,
               counted(host.checks.size(), "check", "checks") + " of the machine" +
                   (warned > 0 ? ", " + counted(warned, "warning", "warnings") : "") + ", " +
                   counted(ranks, "rank", "ranks"),
               ""}));
  for (auto check : host.checks) {
    if (check.verdict != Verdict::warning && check.verdict != Verdict::failed) continue;
    check.found = printable(host.name) + ": " + check.found;
    say(to_text(check));
  }
  hosts_.push_back(std::move(host));
  nodes_ = static_cast<std::uint32_t>(hosts_.size());
}

std::string Report::counts() const {
  std::size_t checks = machine_.size();
  for (const auto& host : hosts_) checks += host.checks.size();
  return counted(checks, "check", "checks") + " of " +
         (!is_on_hosts ? std::string{"this machine"}
                       : counted(hosts_.size(), "machine", "machines")) +
         ", " + counted(results_.size(), "check", "checks") + " with " +
         counted(workers_, "rank", "ranks");
}

std::vector<std::string> Report::failures() const {
  std::vector<std::string> failed;
  for (const auto& line : results_) {
    const auto result = json::parse(line, nullptr, false);
    if (result.value("verdict", "") != "failed") continue;
    const auto name = result.value("name", "?");
    // Of the network the last line says what it is about.
    failed.push_back(name == "network" ? name + ": " + result.value("found", "") : name);
  }
  for (const auto& check : machine_)
    if (check.verdict == Verdict::failed) failed.push_back(check.name);
  for (const auto& host : hosts_)
    for (const auto& check : host.checks)
      if (check.verdict == Verdict::failed)
        failed.push_back(printable(host.name) + ": " + check.name);
  return failed;
}

int Report::finish(int code) {
  std::ifstream file{path_of(results_file_)};
  for (std::string line; std::getline(file, line);)
    // Its writer may have been killed in the middle of it.
    if (json::parse(line, nullptr, false).is_object()) results_.push_back(line);
  const auto failed = failures();
  const auto of = counts();
  if (!failed.empty())
    return conclude(false, "FAILED: " + join(failed, ", ") + " (" + of + ")",
                    code != 0 ? code : to_int(ExitCode::failure));
  if (code != 0 && is_on_hosts && !has_heard())
    return conclude(false, "FAILED: no rank reported, exit code " + std::to_string(code), code);
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

Result<void> Report::write_json(bool well, const std::string& last_line, int code) const {
  json all{{"ok", well},
           {"exit_code", code},
           {"ranks", workers_},
           {"nodes", nodes_},
           {"seconds", seconds()},
           {"said", last_line},
           {"machine", json::array()},
           {"machines", json::array()},
           {"results", json::array()}};
  for (const auto& check : machine_) all["machine"].push_back(as_json(check));
  for (const auto& host : hosts_) {
    json one{{"host", host.name}, {"checks", json::array()}};
    for (const auto& check : host.checks) one["checks"].push_back(as_json(check));
    all["machines"].push_back(std::move(one));
  }
  for (const auto& line : results_) all["results"].push_back(json::parse(line, nullptr, false));
  const auto text = all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  if (!quiet) return agent::write_whole_file(json_file_, text);
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return {};
  return system_error(errno, "write '" + printable(json_file_) + "'");
}

int Report::conclude(bool well, const std::string& last_line, int code) {
  char time[32];
  std::snprintf(time, sizeof time, ", %.1f s", seconds());
  const auto line = "acc-test: " + last_line + time + "\n";
  const bool told = !quiet && std::fputs(line.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!told) std::fputs(line.c_str(), stderr);
  if (json_file_.empty()) return code;
  const auto written = write_json(well, last_line, code);
  if (written) return code;
  std::fprintf(stderr, "acc-test: %s\n", written.error().what.c_str());
  return to_int(ExitCode::output);
}

}  // namespace acc::check
