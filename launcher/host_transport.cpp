#include "launcher/host_transport.hpp"

#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/shell_words.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace acc::launcher {

using namespace literals;

namespace {

class TransportChoice {
 public:
  TransportChoice(const CommandLine& line, const JobSpec& spec, const HostsInputs& inputs,
                  const std::vector<Host>& hosts)
      : line_{line}, spec_{spec}, inputs_{inputs}, hosts_{hosts} {}

  HostTransport run() {
    choose();
    return std::move(made_);
  }

 private:
  void complain(std::string what) {
    made_.complaints.push_back({Errc::bad_config, std::move(what)});
  }
  /// The command line is right: once the daemon runs the same one starts the job.
  void miss_daemon(std::string what) {
    made_.complaints.push_back({Errc::unavailable, std::move(what)});
  }
  [[nodiscard]] bool is_flag(Key key) const { return line_.given(key) != nullptr; }
  [[nodiscard]] bool is_here(const Host& host) const {
    return is_this_machine(host, inputs_.host_name);
  }

  void choose() {
    if (is_flag("ssh"_key) && is_flag("launch_agent"_key))
      complain("--ssh and --launch_agent are two ways to the same hosts: give one of them");
    if (spec_.flag("detach"_key) && (is_flag("ssh"_key) || is_flag("launch_agent"_key)))
      complain(
          "--detach needs acc-agent on the hosts, which keeps the job: leave --ssh and "
          "--launch_agent out");
    if (spec_.flag("wait"_key) && (is_flag("ssh"_key) || is_flag("launch_agent"_key)))
      complain(
          "--wait needs acc-agent on the hosts, which counts their slots: leave --ssh and "
          "--launch_agent out");
    if (spec_.flag("detach"_key) && is_flag("events"_key))
      complain(
          "--events needs a connection to the hosts, and --detach leaves none: leave it out; each "
          "acc-agent has its part's events (/v1/jobs/ID/logs?stream=events)");
    if (is_flag("launch_agent"_key)) {
      made_.kind = HostTransport::Kind::program;
      made_.words = split_words("launch_agent"_key);
      return;
    }
    if (is_flag("ssh"_key)) {
      made_.words = split_words("ssh_options"_key);
      return;
    }
    if (is_flag("ssh_options"_key)) complain("--ssh_options needs --ssh");
    made_.kind = HostTransport::Kind::shell;
    const auto other =
        std::ranges::find_if(hosts_, [this](const Host& host) { return !is_here(host); });
    // A service here counts the workers, also where it reaches no other host.
    const bool needs_daemons =
        other != hosts_.end() || spec_.flag("detach"_key) || spec_.flag("wait"_key);
    if (!needs_daemons && inputs_.daemon.socket.empty()) return;
    made_.kind = HostTransport::Kind::daemons;
    check_daemons(other == hosts_.end() ? hosts_.front() : *other);
  }

  void check_daemons(const Host& other) {
    if (is_flag("remote_launch"_key))
      complain("--remote_launch needs --ssh or --launch_agent: acc-agent has its own acc-launch");
    for (const auto& host : hosts_) {
      if (host.login == host.address) continue;
      return complain("--hosts: " + printable(host.login) +
                      ": acc-agent runs a job as the user who starts it: leave the name in front "
                      "of @ out, or add --ssh");
    }
    const auto& daemon = inputs_.daemon;
    constexpr std::string_view kCure =
        " (acc-agent --listen 29700, with the same secret on all hosts; docs/operations.md), or "
        "add --ssh to start the job through ssh";
    if (daemon.socket.empty())
      return miss_daemon("--hosts: " + printable(other.login) + " is " +
                         (is_here(other) ? "this machine" : "another machine") +
                         ", and no acc-agent answers here that could reach it (" + daemon.why +
                         "): start it on all hosts" + std::string{kCure});
    if (daemon.is_of_user && !is_here(other))
      miss_daemon(
          "--hosts: " + printable(other.login) +
          " is another machine, and the acc-agent that answers here (" + printable(daemon.socket) +
          ") is your own: jobs on other machines need the system's, which runs as root: start "
          "it on all hosts" +
          std::string{kCure});
  }

  std::vector<std::string> split_words(Key key) {
    if (!is_flag(key)) return {};
    auto words = split_shell_words(line_.given(key)->word);
    const auto name = spec_.name_for_complaint(key);
    if (!words) complain(name + ": " + words.error().what);
    if (words && words->empty()) complain(name + ": it is empty");
    return words ? std::move(*words) : std::vector<std::string>{};
  }

  const CommandLine& line_;
  const JobSpec& spec_;
  const HostsInputs& inputs_;
  const std::vector<Host>& hosts_;
  HostTransport made_;
};

constexpr std::string_view kHostMark = "{host}";
constexpr std::string_view kCommandMark = "{command}";

bool has_mark(std::string_view word, std::string_view mark) {
  return word.find(mark) != std::string_view::npos;
}

/// Each mark of a word is replaced; what takes its place isn't looked at again.
std::string with_marks_replaced(std::string_view word, const std::string& host,
                                const std::string& command) {
  std::string out;
  while (!word.empty()) {
    const auto at = std::min({word.find(kHostMark), word.find(kCommandMark), word.size()});
    out += word.substr(0, at);
    word.remove_prefix(at);
    if (word.empty()) break;
    const bool is_host = word.starts_with(kHostMark);
    out += is_host ? host : command;
    word.remove_prefix(is_host ? kHostMark.size() : kCommandMark.size());
  }
  return out;
}

std::vector<std::string> through_program(std::vector<std::string> words, const Host& host,
                                         const std::string& line) {
  bool has_host = false;
  bool has_command = false;
  for (auto& word : words) {
    const bool names_host = has_mark(word, kHostMark);
    has_host |= names_host;
    has_command |= has_mark(word, kCommandMark);
    // A shell's text, as of bash -c 'ssh {host} {command}': there it is one word of that shell.
    const bool is_text = names_host && word.find(' ') != std::string::npos;
    word = with_marks_replaced(word, host.login, is_text ? quote_for_shell(line) : line);
  }
  // A program that has its host already may do without the mark.
  if (!has_host && !has_command) words.push_back(host.login);
  if (!has_command) words.push_back(line);
  return words;
}

}  // namespace

std::string HostTransport::name() const {
  switch (kind) {
    case Kind::ssh:
      return "ssh";
    case Kind::program:
      return words.front();
    case Kind::daemons:
      return "acc-ctl bridge";
    case Kind::shell:
      break;
  }
  return "sh";
}

HostTransport choose_transport(const CommandLine& line, const JobSpec& spec,
                               const HostsInputs& inputs, const std::vector<Host>& hosts) {
  return TransportChoice{line, spec, inputs, hosts}.run();
}

bool is_direct(const HostTransport& transport, bool is_here) {
  return transport.kind == HostTransport::Kind::shell ||
         (transport.kind == HostTransport::Kind::ssh && is_here);
}

std::vector<std::string> command_through(const HostTransport& transport, const Host& host,
                                         bool is_here, const std::string& line) {
  if (transport.kind == HostTransport::Kind::program)
    return through_program(transport.words, host, line);
  if (is_direct(transport, is_here)) return {"sh", "-c", line};
  std::vector<std::string> words{"ssh"};
  // The first value of an option counts: the user's.
  words.insert(words.end(), transport.words.begin(), transport.words.end());
  for (const auto* word : {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                           "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "--"})
    words.emplace_back(word);
  words.push_back(host.login);
  words.push_back(line);
  return words;
}

}  // namespace acc::launcher
