#include "agent/watch/learned_times.hpp"

#include "agent/small_file.hpp"
#include "common/text.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace acc::agent {

namespace {

std::string state_folder() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return state;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    const auto* user = ::getpwuid(::geteuid());
    home = user != nullptr ? user->pw_dir : nullptr;
  }
  return home != nullptr ? std::string{home} + "/.local/state" : std::string{};
}

void make_folder_of(const std::string& file) {
  for (auto slash = file.find('/', 1); slash != std::string::npos;
       slash = file.find('/', slash + 1))
    ::mkdir(file.substr(0, slash).c_str(), 0700);
}

}  // namespace

std::string learned_times_file(const std::string& job) {
  const auto folder = state_folder();
  if (folder.empty()) return {};
  constexpr std::size_t kLongest = 100;
  std::string name = job.substr(0, kLongest);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
      c = '_';
  return folder + "/acc/hang/" + name + ".times";
}

// "step_ms first_ms"
LearnedTimes read_learned_times(const std::string& file) {
  constexpr std::int64_t kMost = std::chrono::milliseconds{std::chrono::hours{24 * 365}}.count();
  const auto words = split(trim(read_small_file(file)), ' ');
  if (words.size() != 2) return {};
  const auto step = parse_number<std::int64_t>(words[0]);
  const auto first = parse_number<std::int64_t>(words[1]);
  if (!step || !first || *step < 0 || *first < 0 || *step > kMost || *first > kMost) return {};
  return {Millis{*step}, Millis{*first}};
}

void write_learned_times(const std::string& file, const LearnedTimes& times) {
  if (file.empty()) return;
  make_folder_of(file);
  static_cast<void>(write_whole_file(
      file, std::to_string(times.step.count()) + ' ' + std::to_string(times.first.count()) + '\n'));
}

}  // namespace acc::agent
