#include "launcher/check/worker_program.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>

namespace acc::check {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerLimit{10'000};

/// What the program prints, first line; empty: it can't be run, or not in time.
std::string ask(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  UniqueFd reader{ends[0]};
  UniqueFd writer{ends[1]};
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    ::dup2(writer.get(), STDOUT_FILENO);
    ::execv(argv[0], argv.data());
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

// "nccl 2.28.9 /usr/lib/libnccl.so.2", or "no-nccl WHY".
NcclProbe probe_nccl(const std::string& worker_program) {
  const auto answer = ask({worker_program, "--probe"});
  if (answer.starts_with("nccl ")) {
    const auto words = split(answer, ' ');
    return {words[1] + (words.size() > 2 ? " (" + words[2] + ")" : ""), {}};
  }
  if (answer.starts_with("no-nccl ")) return {{}, answer.substr(8)};
  return {{}, "'" + worker_program + " --probe' gave no answer"};
}

}  // namespace acc::check
