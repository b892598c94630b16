#include "launcher/ctl/verbs.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace acc::ctl {

namespace {

constexpr std::array kVerbs{
    VerbRow{"ps", "", 0, "lists jobs: of the service, and those of plain acc-launch of this user"},
    VerbRow{"status", "ID", 1, "shows one job: its ranks, pids, memory, restarts"},
    VerbRow{
        "top", "[ID]", 1,
        "shows jobs, or a job's ranks, live on the whole terminal; F1: its keys. Also: acc-top"},
    VerbRow{"logs", "ID", 1, "shows what a job wrote"},
    VerbRow{"submit", "-- WORDS…", 0,
            "starts a job: WORDS as behind acc-launch; follows its output, exits as it does"},
    VerbRow{"attach", "ID", 1, "follows a job's output from now on, exits as it does"},
    VerbRow{"stop", "ID…", 1, "asks jobs to end, as SIGTERM does"},
    VerbRow{"signal", "SIGNAL ID…", 2, "passes a signal on to all workers of jobs"},
    VerbRow{"restart", "ID…", 1, "starts all workers of jobs anew"},
    VerbRow{"stacks", "ID", 1, "shows where a job's workers are: their stacks, odd ones first"},
    VerbRow{"rm", "ID…", 1, "forgets ended jobs, and their output"},
    VerbRow{"events", "", 0, "shows what happened to jobs"},
    VerbRow{"node", "", 0, "shows this node: slots, GPUs, jobs"},
    VerbRow{"nodes", "", 0, "shows the nodes of the cluster, as acc-agent --nodes names them"},
    VerbRow{"token", "", 0,
            "prints a token of yours for the port of acc-agent --http; it may do what you may"},
    VerbRow{"drain", "[NODE]", 1,
            "lets this node, or another, take no more jobs (--reason TEXT); what runs goes on"},
    VerbRow{"undrain", "[NODE]", 1, "lets it take jobs again"},
};

constexpr std::array kFlags{
    FlagRow{"--socket", 0, "FILE", "",
            "the service's socket (ACC_AGENT_SOCKET, else $XDG_RUNTIME_DIR/acc/agent.sock, "
            "~/.local/state/acc/agent.sock, /run/acc/agent.sock)"},
    FlagRow{"--json", 0, "", "ps status events node nodes submit token", "prints JSON"},
    FlagRow{"--node", 0, "NODE", "ps status top logs attach stop signal restart stacks rm node",
            "of another node, HOST[:PORT], through the service of this one"},
    FlagRow{"--follow", 'f', "", "logs events", "waits for more"},
    FlagRow{"--rank", 0, "R", "logs attach",
            "of this rank alone; of a launch: of all nodes' ranks"},
    FlagRow{"--stdout", 0, "", "logs attach", "the standard output alone"},
    FlagRow{"--stderr", 0, "", "logs attach", "the standard error alone"},
    FlagRow{"--since", 0, "T", "logs",
            "nothing if it was last written before: 30 (seconds), 10m, 2h, or 2026-01-31T12:00"},
    FlagRow{"--all", 0, "", "attach", "from the output's beginning"},
    FlagRow{"--name", 0, "NAME", "submit", "the job's name; default: that of the script"},
    FlagRow{"--detach", 'd', "", "submit", "prints the id and returns"},
    FlagRow{"--wait", 0, "", "submit", "for free slots; without it a full node refuses"},
    FlagRow{"--slots", 0, "N", "submit", "slots to take; default: workers on this node"},
    FlagRow{
        "--gpus", 0, "N", "submit",
        "GPUs of its own, which later jobs don't see; default 0: it sees those that no job has"},
    FlagRow{"--restart", 0, "POLICY[:N]", "submit",
            "start the whole job again, N times at most: no, on-failure, always"},
    FlagRow{"--env", 'e', "NAME[=VALUE]", "submit",
            "a variable of the job; without a value: ours. May be repeated"},
    FlagRow{"--grace", 0, "S", "stop", "seconds from SIGTERM to SIGKILL; may shorten a stop"},
    FlagRow{"--read-only", 0, "", "token", "it may look and change nothing"},
    FlagRow{"--expires", 0, "TIME", "token", "how long it is good for; default 12h, at most 366d"},
    FlagRow{"--browser", 0, "", "token",
            "a link to open in a browser, once, within a minute; --expires is of the session"},
    FlagRow{"--force", 0, "", "rm",
            "also a job of which a node doesn't answer; what is there stays"},
    FlagRow{"--reason", 0, "TEXT", "drain", "why: shown to those whose jobs are refused"},
    FlagRow{"--help", 'h', "", "", "shows this text"},
    FlagRow{"--version", 0, "", "", "shows the version"},
    FlagRow{"--completion", 0, "SHELL", "", "prints the completion of bash, zsh or fish"},
};

}  // namespace

std::span<const VerbRow> verb_rows() { return kVerbs; }
std::span<const FlagRow> flag_rows() { return kFlags; }

const VerbRow* find_verb(std::string_view name) {
  const auto found = std::ranges::find(kVerbs, name, &VerbRow::name);
  return found == kVerbs.end() ? nullptr : &*found;
}

const FlagRow* find_flag(std::string_view word, std::string_view verb) {
  const auto* flag = launcher::find_flag(kFlags, word);
  return flag != nullptr && (verb.empty() || belongs_to(*flag, verb)) ? flag : nullptr;
}

}  // namespace acc::ctl
