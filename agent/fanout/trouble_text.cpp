#include "agent/fanout/trouble_text.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

constexpr int kSshFailed = 255;
constexpr int kNotFound = 127;
/// What begins a line of ours: acc-launch's, or that of a bridge of acc-ctl.
constexpr std::string_view kOurs[] = {"acc-launch: ", "acc-ctl: "};
constexpr std::size_t kMostText = 600;

/// What ssh says, and what to do about it. HOST is the host.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kSshCures{{
    {"Could not resolve hostname", "no such name here: check its spelling, /etc/hosts or DNS"},
    {"Connection refused",
     "no ssh server listens there: start sshd, or name its port with "
     "--ssh_options='-p PORT'"},
    {"Connection timed out", "it doesn't answer: is it up, and reachable from here?"},
    {"No route to host", "it can't be reached from here: is it up, and is the network?"},
    {"Network is unreachable", "it can't be reached from here: is the network up?"},
    {"Permission denied", "ssh must log in without a password: ssh-copy-id HOST, or ssh-add"},
    {"Host key verification failed", "its key isn't known here: look at it once with `ssh HOST`"},
    {"Bad configuration option", "see --ssh_options"},
    {"Connection closed", "its ssh server ended the connection: look at its log"},
}};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto& line : split(text, '\n')) {
    const auto trimmed = trim(line);
    if (!trimmed.empty()) lines.emplace_back(trimmed);
  }
  return lines;
}

/// A line of ours without the program's name; empty: another program's.
std::string_view without_program(std::string_view line) {
  for (const auto ours : kOurs) {
    if (line.starts_with(ours)) return line.substr(ours.size());
  }
  return {};
}

/// What acc-launch on the host complained about; empty: it said nothing.
std::string own_words(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) {
    const auto words = without_program(line);
    if (words.empty() || words == "try --help") continue;
    if (words.starts_with("note: ") || words.starts_with("warning: ")) continue;
    text += (text.empty() ? "" : "; ") + printable(words, kMostText);
  }
  return text;
}

std::string with_host(std::string_view cure, const std::string& host) {
  constexpr std::string_view kMark = "HOST";
  std::string text{cure};
  for (auto at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at)) {
    text.replace(at, kMark.size(), host);
    at += host.size();  // the host's own name may hold the mark
  }
  return text;
}

std::string describe_ssh(const std::string& last, const std::string& host) {
  for (const auto& [said, cure] : kSshCures) {
    if (last.find(said) != std::string::npos) {
      const auto end = last.find_last_not_of(" .:");
      return printable(last.substr(0, end + 1), kMostText) + ": " + with_host(cure, host);
    }
  }
  const std::string advice = "try `ssh " + host + " true`";
  return last.empty() ? "ssh failed without a word: " + advice
                      : printable(last, kMostText) + ": " + advice;
}

std::string describe_exit(const HostTrouble& trouble, const std::string& host,
                          const TransportWords& words) {
  const auto lines = lines_of(trouble.text);
  const auto last = lines.empty() ? std::string{} : lines.back();
  const auto ours = own_words(lines);
  const auto* exited = std::get_if<Exited>(&trouble.status);
  if (ours.find("unrecognized arguments: --life_line") != std::string::npos)
    return "its acc-launch is another version, which can't be started from another host: install " +
           words.version + " there";
  if (!ours.empty() && words.uses_daemons) return ours;
  if (ours.find("cannot start") != std::string::npos)
    return ours + " (files aren't copied to the hosts: put it there, or use a shared folder)";
  if (!ours.empty()) return ours;
  if (exited != nullptr && exited->code == kSshFailed && words.is_ssh)
    return describe_ssh(last, host);
  const std::string said = last.empty() ? std::string{} : " (" + printable(last, kMostText) + ")";
  if (exited != nullptr && exited->code == kNotFound)
    return "there is no acc-launch" + said +
           ": install it there, or say where it is with --remote_launch PATH";
  return words.program + " " + describe(trouble.status) + " before acc-launch answered" + said;
}

}  // namespace

std::string describe(const HostTrouble& trouble, const std::string& host,
                     const TransportWords& words) {
  switch (trouble.what) {
    case HostTrouble::What::not_started:
      return "'" + printable(words.program) +
             "' could not be started here: " + std::strerror(trouble.errnum);
    case HostTrouble::What::other_version:
      return (words.uses_daemons ? "its acc-agent is version " : "its acc-launch is version ") +
             printable(trouble.text) + ", this one is " +
             words.version + ": install the same on all hosts";
    case HostTrouble::What::silent:
      return "no answer yet: is it slow, or does " + printable(words.program) +
             " wait for something? Try it by hand";
    case HostTrouble::What::same_daemon:  // describe_troubles, which knows the other's name
    case HostTrouble::What::exited:
      break;
  }
  return describe_exit(trouble, host, words);
}

std::string describe_troubles(const FanOutState& state, const std::vector<std::string>& names,
                              const TransportWords& words) {
  constexpr std::size_t kMostNames = 8;
  struct Group {
    std::string text;
    std::vector<std::string> names;
  };
  std::vector<Group> groups;
  std::size_t count = 0;
  for (std::size_t i = 0; i < state.hosts.size(); ++i) {
    const auto& trouble = state.hosts[i].trouble;
    if (!trouble) continue;
    ++count;
    const auto text = trouble->what == HostTrouble::What::same_daemon
                          ? "is " + names[trouble->other] +
                                ", under another name: name each machine once, with all its workers"
                          : describe(*trouble, names[i], words);
    const auto known = std::ranges::find(groups, text, &Group::text);
    if (known != groups.end()) {
      known->names.push_back(names[i]);
    } else {
      groups.push_back({text, {names[i]}});
    }
  }
  std::string text = std::to_string(count) + " of " + plural(state.hosts.size(), "host") +
                     " can't take part, so nothing was started:";
  for (auto& group : groups) {
    const auto more = group.names.size() > kMostNames ? group.names.size() - kMostNames : 0;
    group.names.resize(group.names.size() - more);
    text += "\n  " + join(group.names, ", ") +
            (more == 0 ? "" : " and " + std::to_string(more) + " more") + ": " + group.text;
  }
  return text;
}

std::string describe_lost(const TellLost& lost, const std::string& host,
                          const TransportWords& words) {
  const auto lines = lines_of(lost.last_words);
  const std::string said = lines.empty() ? "" : " (" + printable(lines.back(), kMostText) + ")";
  const auto* exited = std::get_if<Exited>(&lost.status);
  if (words.uses_daemons) {
    // Its own complaint, which names the host, stands above this line.
    const bool is_told =
        !lines.empty() && without_program(lines.back()).starts_with(host + ": ");
    return "what " + host + " does is not known any longer" +
           (is_told ? "" : ": " + words.program + " " + describe(lost.status) + said) +
           "; its part of the job may go on: 'acc-ctl --node " + host +
           " ps' shows it, 'acc-ctl stop ID' ends it";
  }
  if (exited != nullptr && exited->code == to_int(ExitCode::agent_lost))
    return "acc-launch on " + host + " ended without a report" + said;
  return "the connection to " + host + " was lost: " + words.program + " " + describe(lost.status) +
         said + "; acc-launch there stops its workers once it notices that";
}

std::string why_missed(const FanOutHost& missed) {
  if (!missed.exit_code) return "the connection to it is lost";
  const auto row = std::ranges::find_if(
      kExitCodes, [&](const ExitCodeRow& one) { return to_int(one.code) == *missed.exit_code; });
  const auto why = "its part has ended with exit code " + std::to_string(*missed.exit_code);
  return row == kExitCodes.end() ? why : why + " (" + std::string{row->name} + ")";
}

std::string describe_missed(const FanOutHost& missed, const std::string& host) {
  return "the job can't go on without " + host + ": " + why_missed(missed) +
         ", and nothing starts it again: stopping the other hosts";
}

std::string describe_loss(const OutputLost& loss, const std::string& host) {
  if (loss.lines == 0 && loss.bytes == 0)
    return "warning: " + printable(loss.where) + " of " + host +
           " may be missing here from its last line on; " +
           printable(loss.why);
  return "warning: " + plural(loss.lines, "line") + " of " + printable(loss.where) +
         (loss.lines == 1 ? " was" : " were") + " lost on " + host + " (" + printable(loss.why) +
         ")";
}

std::string describe_left(const TellLeft& told, const FanOutHost& left, const std::string& host,
                          const TransportWords& words) {
  const auto what = left.silence ? " is unreachable" : " does not report the end of its part";
  if (told.is_over)
    return host + what + ", and the job has ended: its part has, too, or ends by itself" +
           (words.uses_daemons
                ? "; 'acc-ctl --node " + host + " ps', on any node that reaches it, shows it"
                : "");
  if (!words.uses_daemons)
    return host + what +
           "; its part ends when its lease is over, or when acc-launch there notices the lost "
           "connection";
  // The coordinator of parts that reach each other renews their leases.
  const auto at_node = "'acc-ctl --node " + host;
  return host + what + "; its part may go on: " +
         (left.job.empty() ? at_node + " ps', on any node that reaches it, shows it"
                           : at_node + " stop " + left.job +
                                 "', on any node that reaches it, ends it");
}

}  // namespace acc::agent
