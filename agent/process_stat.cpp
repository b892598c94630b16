#include "agent/process_stat.hpp"

#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <charconv>

namespace acc::agent {

ProcessStat read_process_stat(pid_t pid) {
  return parse_process_stat(read_small_file("/proc/" + std::to_string(pid) + "/stat"));
}

ProcessStat parse_process_stat(std::string_view text) {
  constexpr int kParent = 4;
  constexpr int kStartTime = 22;
  const auto name_begin = text.find('(');
  const auto name_end = text.rfind(") ");
  if (name_begin == std::string_view::npos || name_end == std::string_view::npos ||
      name_end < name_begin || name_end + 2 >= text.size())
    return {};
  ProcessStat found;
  found.name = text.substr(name_begin + 1, name_end - name_begin - 1);
  auto rest = text.substr(name_end + 2);
  found.state = rest[0];
  for (int field = 3; field <= kStartTime && !rest.empty(); ++field) {
    const auto length = std::min(rest.find(' '), rest.size());
    const auto word = rest.substr(0, length);
    if (field == kParent) found.parent = parse_number<pid_t>(word).value_or(0);
    if (field == kStartTime) found.start_time = parse_number<std::uint64_t>(word).value_or(0);
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
  return found;
}

// Of /proc/PID/status; empty: it isn't there.
static std::string_view status_value(std::string_view status, std::string_view key) {
  const auto at = status.find("\n" + std::string{key} + ":");
  if (at == std::string_view::npos) return {};
  const auto rest = status.substr(at + key.size() + 2);
  return trim(rest.substr(0, rest.find('\n')));
}

static std::string read_status(pid_t pid) {
  return read_small_file("/proc/" + std::to_string(pid) + "/status");
}

pid_t tracer_of(pid_t pid) {
  const auto status = read_status(pid);
  return parse_number<pid_t>(status_value(status, "TracerPid")).value_or(0);
}

static std::uint64_t signal_set(std::string_view status, std::string_view key) {
  const auto text = status_value(status, key);
  std::uint64_t signals = 0;
  std::from_chars(text.data(), text.data() + text.size(), signals, 16);
  return signals;
}

static bool has_signal(pid_t pid, std::string_view set, int signo) {
  return signo > 0 && signo <= 64 && (signal_set(read_status(pid), set) & signal_bit(signo)) != 0;
}

SignalSets read_signal_sets(pid_t pid) {
  const auto status = read_status(pid);
  return {signal_set(status, "SigBlk"), signal_set(status, "SigIgn"), signal_set(status, "SigCgt")};
}

bool ignores_signal(pid_t pid, int signo) { return has_signal(pid, "SigIgn", signo); }

bool has_pending_signal(pid_t pid, int signo) { return has_signal(pid, "ShdPnd", signo); }

std::vector<pid_t> children_of_main_thread(pid_t pid) {
  const auto id = std::to_string(pid);
  std::vector<pid_t> children;
  for (const auto& word :
       split(trim(read_small_file("/proc/" + id + "/task/" + id + "/children")), ' '))
    if (const auto child = parse_number<pid_t>(word)) children.push_back(*child);
  return children;
}

}  // namespace acc::agent
