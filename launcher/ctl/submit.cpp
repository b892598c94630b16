#include "launcher/ctl/submit.hpp"

#include "agent/guardian.hpp"
#include "agent/job_plan.hpp"
#include "common/json_bytes.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/launcher.hpp"
#include "launcher/user_messages.hpp"

#include <nlohmann/json.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace acc::ctl {

namespace {

/// stderr goes to memory while one lives: the job itself says the same notes again.
class HeldMessages {
 public:
  HeldMessages() : before_{::dup(STDERR_FILENO)}, held_{::memfd_create("messages", MFD_CLOEXEC)} {
    if (before_ && held_) ::dup2(held_.get(), STDERR_FILENO);
  }
  ~HeldMessages() { release(); }
  HeldMessages(const HeldMessages&) = delete;
  HeldMessages& operator=(const HeldMessages&) = delete;

  void release() {
    if (before_) ::dup2(before_.get(), STDERR_FILENO);
    before_.reset();
  }
  void print() {
    release();
    std::array<char, 4096> chunk;
    off_t at = 0;
    for (ssize_t n; held_ && (n = ::pread(held_.get(), chunk.data(), chunk.size(), at)) > 0;
         at += n)
      launcher::write_all(STDERR_FILENO, {chunk.data(), static_cast<std::size_t>(n)});
  }

 private:
  UniqueFd before_;
  UniqueFd held_;
};

std::string working_directory() {
  char buffer[4096];
  return ::getcwd(buffer, sizeof buffer) != nullptr ? buffer : "/";
}

std::string octal(mode_t mask) {
  char text[8];
  std::snprintf(text, sizeof text, "%03o", static_cast<unsigned>(mask));
  return text;
}

std::string script_of(const agent::JobPlan& plan) {
  const auto& words = plan.command;
  if (words.empty()) return "job";
  const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  auto name = base(words.front());
  if (name.starts_with("python") || name.starts_with("pypy")) {
    const auto script = std::find_if(words.begin() + 1, words.end(),
                                     [](const auto& word) { return !word.starts_with('-'); });
    if (script != words.end()) name = base(*script);
  }
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

}  // namespace

Planned plan_words(const std::vector<std::string>& words) {
  Planned planned;
  bool is_planned = false;
  HeldMessages messages;
  const auto take = [&](const agent::JobPlan& plan) -> std::optional<int> {
    is_planned = true;
    planned.slots = std::max(1U, plan.local_world_size);
    planned.name = job_name(script_of(plan));
    return 0;
  };
  const int code = launcher::launch(words, agent::GuardianLink{}, true, {.before_start = take});
  if (is_planned) return planned;
  planned.refused = code;  // or it was --help, --print_plan …
  messages.print();
  return planned;
}

std::string job_name(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string name;
  for (const char c : to_lower(text).substr(0, kLongest)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool inner = c == '.' || c == '_' || c == '-';
    if (plain || (inner && !name.empty())) name += c;
    if (!plain && !inner && !name.empty()) name += '-';
  }
  return name;
}

Result<std::string> submission(const Command& command, const Planned& planned) {
  nlohmann::json body{{"words", json_texts_of(command.words)},
                      {"working_directory", json_text_of(working_directory())},
                      {"slots", planned.slots},
                      {"wait", command.has("--wait")}};
  body["name"] = command.has("--name") ? command.value("--name") : planned.name;
  if (const auto slots = parse_number<unsigned>(command.value("--slots"))) body["slots"] = *slots;
  if (const auto gpus = parse_number<unsigned>(command.value("--gpus"))) body["gpus"] = *gpus;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  body["umask"] = octal(mask);
  if (command.has("--restart")) {
    const auto wish = parse_restart(command.value("--restart"));
    if (!wish) return wish.error();
    body["restart"] = {{"policy", wish->policy}, {"max", wish->max}};
  }
  auto env = nlohmann::json::object();
  if (const auto given = command.flags.find("--env"); given != command.flags.end()) {
    for (const auto& one : given->second) {
      const auto equals = one.find('=');
      const auto name = one.substr(0, equals);
      const char* ours = ::getenv(name.c_str());
      if (name.empty() || (equals == std::string::npos && ours == nullptr))
        return Error{Errc::bad_usage,
                     "--env " + in_quotes(one, 80) +
                         (name.empty() ? ": a name is missing" : ": this variable isn't set here")};
      env[name] =
          json_text_of(equals == std::string::npos ? std::string{ours} : one.substr(equals + 1));
    }
  }
  body["env"] = std::move(env);
  return to_line(body);
}

}  // namespace acc::ctl
