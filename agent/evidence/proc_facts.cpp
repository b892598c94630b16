#include "agent/evidence/proc_facts.hpp"

#include "agent/containment.hpp"
#include "agent/process_stat.hpp"
#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>

namespace acc::agent::evidence {

namespace {

constexpr int kDeepest = 32;
constexpr std::array<std::string_view, 6> kShells{"sh", "bash", "dash", "zsh", "env", "timeout"};

std::string of(pid_t pid, std::string_view file) {
  return read_small_file("/proc/" + std::to_string(pid) + "/" + std::string{file});
}

std::string field(std::string_view status, std::string_view name) {
  const auto at = status.find(std::string{"\n"} + std::string{name} + ":");
  if (at == std::string_view::npos) return {};
  status.remove_prefix(at + name.size() + 2);
  return std::string{trim(status.substr(0, status.find('\n')))};
}

std::string program_of(pid_t pid) {
  char path[4096];
  const auto link = "/proc/" + std::to_string(pid) + "/exe";
  const auto n = ::readlink(link.c_str(), path, sizeof path);
  const std::string_view whole{path, n > 0 ? static_cast<std::size_t>(n) : 0};
  return std::string{whole.substr(whole.rfind('/') + 1)};
}

}  // namespace

ProcFacts read_proc(pid_t pid) {
  ProcFacts facts;
  const auto status = of(pid, "status");
  const auto state = field(status, "State");
  if (!state.empty()) facts.state = state.front();
  facts.parent = parse_number<pid_t>(field(status, "PPid")).value_or(0);
  facts.command = printable(trim(of(pid, "comm")), 32);
  facts.wait_channel = printable(trim(of(pid, "wchan")), 64);
  if (facts.wait_channel == "0") facts.wait_channel.clear();
  const auto call = of(pid, "syscall");
  const auto word = trim(std::string_view{call}.substr(0, call.find(' ')));
  if (word != "running" && word != "-1") facts.system_call = printable(word, 16);
  facts.caught_signals = std::strtoull(field(status, "SigCgt").c_str(), nullptr, 16);
  return facts;
}

bool is_of(pid_t process, pid_t ancestor) {
  for (int i = 0; i < kDeepest && process > 1; ++i) {
    if (process == ancestor) return true;
    process = read_proc(process).parent;
  }
  return false;
}

std::vector<std::string> descendant_words(pid_t pid) {
  constexpr std::size_t kShown = 16;
  constexpr std::size_t kMost = 256;  // looked at
  std::vector<std::string> words;
  std::vector<std::pair<pid_t, pid_t>> found;  // with its parent
  const auto add_children = [&](pid_t parent) {
    for (const auto child : children_of(parent)) found.emplace_back(child, parent);
  };
  add_children(pid);
  std::size_t more = 0;
  for (std::size_t i = 0; i < std::min(found.size(), kMost); ++i) {
    const auto [child, parent] = found[i];
    add_children(child);
    const auto facts = read_proc(child);
    if (facts.state == '?' || facts.state == 'Z' || facts.state == 'X') continue;
    if (words.size() == kShown) {
      ++more;
      continue;
    }
    words.push_back(
        (parent == pid ? "its child: pid " : "child of " + std::to_string(parent) + ": pid ") +
        std::to_string(child) + " (" + facts.command + "), state " + facts.state +
        (facts.wait_channel.empty() ? "" : ", in " + facts.wait_channel) +
        (facts.system_call.empty() ? "" : ", system call " + facts.system_call));
  }
  if (found.size() > kMost || more > 0)
    words.push_back("… and " + (found.size() > kMost ? "many" : std::to_string(more)) +
                    " more below it");
  return words;
}

pid_t behind_shells(pid_t worker) {
  for (int i = 0; i < kDeepest; ++i) {
    if (std::ranges::find(kShells, program_of(worker)) == kShells.end()) return worker;
    const auto children = children_of_main_thread(worker);
    if (children.size() != 1) return worker;
    worker = children.front();
  }
  return worker;
}

std::string variable_of(pid_t pid, std::string_view name) {
  const auto all = of(pid, "environ");
  const std::string wanted = std::string{name} + "=";
  for (std::string_view rest = all; !rest.empty();) {
    const auto end = std::min(rest.find('\0'), rest.size());
    if (rest.starts_with(wanted)) return std::string{rest.substr(0, end).substr(wanted.size())};
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

bool has_gpu_driver(pid_t pid) {
  std::ifstream maps{"/proc/" + std::to_string(pid) + "/maps"};  // may take some MiB
  for (std::string line; std::getline(maps, line);)
    if (line.find("/libcuda.so") != std::string::npos ||
        line.find("/libamdhip64.so") != std::string::npos)
      return true;
  return false;
}

bool is_python(pid_t pid) {
  const auto program = program_of(pid);
  return program.starts_with("python") || program.starts_with("pypy");
}

}  // namespace acc::agent::evidence
