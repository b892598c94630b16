#include "agent/evidence/held_processes.hpp"

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

struct Now {
  char state = '?';  // '?': there is no such process any more
  std::string start_time;
};

// The name, which may hold anything, ends at the last parenthesis.
Now look_at(pid_t pid) {
  constexpr std::size_t kStartTime = 19;  // field 22, counted from the state
  const auto stat = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return {};
  const auto fields = split(std::string_view{stat}.substr(name_end + 2), ' ');
  if (fields.size() <= kStartTime || fields.front().empty()) return {};
  return {fields.front().front(), std::string{fields[kStartTime]}};
}

bool is_stop(char state) { return state == 'T' || state == 't'; }

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

void HeldProcesses::note(pid_t pid) { note(pid, kNoChildren); }
void HeldProcesses::note_with_children(pid_t pid) { note(pid, kMostGenerations); }

void HeldProcesses::note(pid_t pid, int depth) {
  auto now = look_at(pid);
  if (now.state == '?') return;
  const bool is_known = std::ranges::any_of(
      all_, [&](const Held& one) { return one.pid == pid && one.start_time == now.start_time; });
  if (!is_known) all_.push_back({pid, std::move(now.start_time), is_stop(now.state)});
  if (depth == 0) return;
  const auto id = std::to_string(pid);
  const auto children = read_small_file("/proc/" + id + "/task/" + id + "/children");
  for (const auto& word : split(trim(children), ' '))
    if (const auto child = parse_number<pid_t>(word)) note(*child, depth - 1);
}

bool HeldProcesses::let_go() {
  bool do_all_run = true;
  for (const auto& one : all_) {
    const auto now = look_at(one.pid);
    if (one.was_stopped || now.start_time != one.start_time) continue;
    if (!is_stop(now.state) && !has_pending_stop(one.pid)) continue;
    do_all_run = false;
    // A debugger that holds it lets it go first, or is ended.
    if (now.state != 't') ::kill(one.pid, SIGCONT);
  }
  return do_all_run;
}

}  // namespace acc::agent::evidence
