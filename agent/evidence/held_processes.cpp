#include "agent/evidence/held_processes.hpp"

#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace acc::agent::evidence {

namespace {

constexpr int kNoChildren = 0;
constexpr int kMostGenerations = 8;

// Of any of its threads: it stops as soon as it runs.
bool has_pending_stop(pid_t pid) {
  std::error_code error;
  const auto folder = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator at{folder, error}, end; !error && at != end;
       at.increment(error)) {
    for (const auto& line : split(read_small_file(at->path().string() + "/status"), '\n')) {
      if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
      const auto pending = std::strtoull(std::string{line.substr(7)}.c_str(), nullptr, 16);
      if ((pending >> (SIGSTOP - 1) & 1U) != 0) return true;
    }
  }
  return false;
}

}  // namespace

bool is_stop(char state) { return state == 'T' || state == 't'; }

void HeldProcesses::note(pid_t pid) { note(pid, kNoChildren); }
void HeldProcesses::note_with_children(pid_t pid) { note(pid, kMostGenerations); }

void HeldProcesses::note(pid_t pid, int depth) {
  const auto now = read_process_stat(pid);
  if (now.state == 'X') return;
  const bool is_known = std::ranges::any_of(
      all_, [&](const Held& one) { return one.pid == pid && one.start_time == now.start_time; });
  if (!is_known) all_.push_back({pid, now.start_time, is_stop(now.state)});
  if (depth == 0) return;
  for (const auto child : children_of_main_thread(pid)) note(child, depth - 1);
}

bool HeldProcesses::let_go() {
  bool do_all_run = true;
  for (const auto& one : all_) {
    const auto now = read_process_stat(one.pid);
    if (one.was_stopped || now.start_time != one.start_time) continue;
    if (!is_stop(now.state) && !has_pending_stop(one.pid)) continue;
    do_all_run = false;
    // A debugger that holds it lets it go first, or is ended.
    if (now.state != 't') ::kill(one.pid, SIGCONT);
  }
  return do_all_run;
}

}  // namespace acc::agent::evidence
