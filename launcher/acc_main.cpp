#include "common/exit_codes.hpp"
#include "launcher/command_words.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

/// In the folder of this program, in the one for programs that nobody types, or on PATH where acc
/// was copied alone. Returns only if it fails.
int become(const std::string& program, const std::vector<std::string>& words) {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string name = program;
  std::vector<char*> argv{name.data()};
  auto copies = words;
  for (auto& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (const auto& folder : {here, here / "../libexec/acc"}) {
    if (!error) ::execv((folder / program).c_str(), argv.data());
    if (!error && errno != ENOENT) break;
  }
  if (error || errno == ENOENT) ::execvp(program.c_str(), argv.data());
  const int why = errno;
  std::fprintf(stderr, "acc: '%s' can't be started: %s; it belongs beside acc, in '%s'\n",
               program.c_str(), std::strerror(why), here.c_str());
  return acc::to_int(acc::ExitCode::failure);
}

}  // namespace

/// acc WORD …: one program for those who know `accelerate`.
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto what = acc::launcher::dispatch(words);
  if (!what.program.empty()) return become(what.program, what.words);
  if (what.is_complaint) {
    std::fprintf(stderr, "acc: %s\nacc: try --help\n", what.text.c_str());
    return acc::to_int(acc::ExitCode::usage);
  }
  const bool written = std::fputs(what.text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : acc::to_int(acc::ExitCode::failure);
}
