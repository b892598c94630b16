#include "launcher/check/worker_program.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/host_probes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace acc::check {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerLimit{10'000};

/// "NAME=VALUE" of these, and of our own environment without them.
std::vector<std::string> environment_with(const RankVariables& variables) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  for (char** line = environ; *line != nullptr; ++line) {
    const bool is_replaced = std::ranges::any_of(variables, [&](const auto& one) {
      return std::string_view{*line}.starts_with(one.first + "=");
    });
    if (!is_replaced) lines.emplace_back(*line);
  }
  return lines;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// What the program prints, first line; empty: it can't be run, or not in time.
std::string ask(const std::vector<std::string>& words, const RankVariables& variables = {}) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  UniqueFd reader{ends[0]};
  UniqueFd writer{ends[1]};
  const auto argv = pointers_to(words);
  const auto lines = environment_with(variables);
  const auto envp = pointers_to(lines);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    ::dup2(writer.get(), STDOUT_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  writer.reset();
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kAnswerLimit;
  while (text.find('\n') == std::string::npos && text.size() < 65536) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{reader.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 4096> some{};
    const auto got = ::read(reader.get(), some.data(), some.size());
    if (got <= 0) break;
    text.append(some.data(), static_cast<std::size_t>(got));
  }
  ::kill(child, SIGKILL);  // it has said what we want to know
  ::waitpid(child, nullptr, 0);
  return text.substr(0, text.find('\n'));
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// Of NCCL, and of the CUDA runtime that PyTorch uses with it. The runtime itself looks into an
/// active environment alone (runtime/nccl/dynamic_library.hpp).
RankVariables libraries_in_packages(const std::string& interpreter) {
  using launcher::file_in_packages;
  const auto nccl = file_in_packages(interpreter, {"nvidia/nccl/lib/libnccl.so.2"});
  if (nccl.empty()) return {};
  RankVariables variables{{"ACC_NCCL_LIBRARY", nccl}};
  auto cuda = file_in_packages(
      interpreter, {"nvidia/cu13/lib/libcudart.so.13", "nvidia/cuda_runtime/lib/libcudart.so.12"});
  if (!cuda.empty() && !is_set("ACC_CUDART_LIBRARY"))
    variables.emplace_back("ACC_CUDART_LIBRARY", std::move(cuda));
  return variables;
}

// "nccl 2.28.9 /usr/lib/libnccl.so.2", or "no-nccl WHY".
NcclProbe probe_with(const std::string& worker_program, const RankVariables& variables) {
  const auto answer = ask({worker_program, "--probe"}, variables);
  if (answer.starts_with("nccl ")) {
    const auto words = split(answer, ' ');
    return {words[1] + (words.size() > 2 ? " (" + words[2] + ")" : ""), {}, variables};
  }
  if (answer.starts_with("no-nccl ")) return {{}, answer.substr(8), {}};
  return {{}, "'" + worker_program + " --probe' gave no answer", {}};
}

}  // namespace

std::string find_worker_program() {
  std::string own(4096, '\0');
  const auto length = ::readlink("/proc/self/exe", own.data(), own.size());
  own.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  const auto folder = own.substr(0, own.rfind('/') + 1);
  auto beside = folder + "acc-test-worker";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : folder + "../libexec/acc/acc-test-worker";
}

std::string wrong_options(const std::string& worker_program,
                          const std::vector<std::string>& options) {
  std::vector<std::string> words{worker_program, "--only_options"};
  words.insert(words.end(), options.begin(), options.end());
  const auto answer = ask(words);
  if (answer.empty()) return "'" + worker_program + "' gave no answer: is it of this version?";
  return answer == "good" ? "" : answer;
}

NcclProbe probe_nccl(const std::string& worker_program, const std::string& interpreter) {
  auto probed = probe_with(worker_program, {});
  if (!probed.found.empty() || is_set("ACC_NCCL_LIBRARY")) return probed;
  const auto variables = libraries_in_packages(interpreter);
  return variables.empty() ? probed : probe_with(worker_program, variables);
}

}  // namespace acc::check
