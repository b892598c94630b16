#pragma once

#include <array>
#include <string_view>

namespace acc {

/// Exit codes of our own failures. A worker's own code is passed on unchanged, a signal as 128 +
/// its number. The table in docs/exit-codes.md is generated from kExitCodes.
enum class ExitCode : int {
  success = 0,
  failure = 1,
  usage = 2,
  nodes_missing = 69,
  agent_lost = 70,
  resources = 71,
  unkillable = 72,
  output = 73,
  unfit = 74,
  requeue = 75,
  refused = 77,
  hopeless = 93,
  hang = 124,
  cannot_execute = 126,
  command_not_found = 127,
};

/// What an agent's exit code tells of: the job's end, or that of its node's part only.
enum class EndOf { job, node };

struct ExitCodeRow {
  ExitCode code;
  EndOf end_of;
  std::string_view name;
  std::string_view meaning;
  std::string_view what_to_do;
};

inline constexpr std::array kExitCodes{
    ExitCodeRow{ExitCode::success, EndOf::job, "success", "every worker ended with 0", ""},
    ExitCodeRow{ExitCode::failure, EndOf::job, "failure",
                "refused before a worker was started: the machine or the job doesn't allow it",
                "read the message: it names the cause"},
    ExitCodeRow{
        ExitCode::usage, EndOf::job, "usage", "the command line or the config file is wrong",
        "read the complaints: each names the flag or the key, its value and where it stands"},
    ExitCodeRow{ExitCode::nodes_missing, EndOf::node, "nodes_missing",
                "too few nodes joined or rejoined in time, or this node lost the others",
                "read which nodes are named and look at them and at the network between"},
    ExitCodeRow{ExitCode::agent_lost, EndOf::node, "agent_lost",
                "the agent process died (a signal named in the message); its workers were ended",
                "requeue; if nobody killed it, report a bug with the message"},
    ExitCodeRow{ExitCode::resources, EndOf::job, "resources",
                "workers could not be started: processes, descriptors or memory ran out",
                "raise the limit that the message names"},
    ExitCodeRow{ExitCode::unkillable, EndOf::job, "unkillable",
                "a process survived SIGKILL (state D: a driver or a file system hangs)",
                "drain the node; a reboot is usually needed"},
    ExitCodeRow{
        ExitCode::output, EndOf::job, "output",
        "what was asked for can't be written: --report, --log_dir, --events, or --print_plan to a full disk",
        "check the path and the space on its disk"},
    ExitCodeRow{ExitCode::unfit, EndOf::node, "unfit",
                "the health checks found this node unfit (--health): it left the job, or didn't "
                "begin it",
                "requeue on another node; look at what the message names, then acc-ctl undrain"},
    ExitCodeRow{ExitCode::requeue, EndOf::job, "requeue",
                "pre-empted: a signal of --preempt_signals ended the job", "requeue the job"},
    ExitCodeRow{ExitCode::refused, EndOf::node, "refused",
                "the job's other nodes refused this one: another secret, script, count or version",
                "read the message: it names both values"},
    ExitCodeRow{ExitCode::hopeless, EndOf::job, "hopeless",
                "--max_no_progress rounds in a row failed without progress: a restart doesn't help",
                "don't requeue; look at the first failure"},
    ExitCodeRow{ExitCode::hang, EndOf::job, "hang",
                "a worker made no progress for --hang_timeout or --stall_timeout, and no restart "
                "was left",
                "read the report: it names the worker that the others waited for, and where its "
                "stack was saved"},
    ExitCodeRow{ExitCode::cannot_execute, EndOf::job, "cannot_execute",
                "the script or program may not be read or executed, or is a folder without "
                "__main__.py",
                "check its mode and its interpreter line"},
    ExitCodeRow{ExitCode::command_not_found, EndOf::job, "command_not_found",
                "the script or program doesn't exist", "check the path and PATH"},
};

[[nodiscard]] constexpr int to_int(ExitCode code) noexcept { return static_cast<int>(code); }

static_assert(to_int(ExitCode::requeue) == 75,
              "EX_TEMPFAIL: what schedulers understand as 'again'");

}  // namespace acc
