#include "common/worker_env.hpp"

#include <array>

namespace acc::worker_env {

static constexpr std::array kRows{
    Row{kRank, "number of this worker in the whole job, from 0", true},
    Row{kLocalRank, "number of this worker on its node, from 0", true},
    Row{kWorldSize, "workers in the whole job", true},
    Row{kLocalWorldSize, "workers on this node", true},
    Row{kGroupRank, "number of this node in the job, from 0", true},
    Row{kGroupWorldSize, "nodes in the job", true},
    Row{kRoleName, "the text of --role", true},
    Row{kRoleRank, "number of this worker among those of its role", true},
    Row{kRoleWorldSize, "workers of this role", true},
    Row{kMasterAddr, "where the worker of rank 0 serves the framework's store", true},
    Row{kMasterPort, "the port there; another one in each round unless it was given", true},
    Row{kRestartCount, "restarts so far", true},
    Row{kMaxRestarts, "the value of --max_restarts", true},
    Row{kRunId, "the value of --rdzv_id", true},
    Row{kUseAgentStore, "always False: the worker of rank 0 serves the store", true},
    Row{kErrorFile, "where torch's @record writes a Python exception for our report", true},
    Row{kNcclAsync, "1 unless set by the caller (PyTorch before 2.2)", true},
    Row{kTorchNcclAsync, "1 unless set by the caller (PyTorch 2.2 and later)", true},
    Row{kPmiRank, "only for programs of MPICH's kind (--mpi): as RANK", true},
    Row{kPmiSize, "… as WORLD_SIZE", true},
    Row{kPmiFd, "… the descriptor on which they ask for the others' addresses", true},
    Row{kMpiLocalRank, "… as LOCAL_RANK", true},
    Row{kMpiLocalSize, "… as LOCAL_WORLD_SIZE", true},
    Row{kAccJobId,
        "unique name of this run of acc-launch: on several nodes another one on each. "
        "TORCHELASTIC_RUN_ID is the same on all, with `--hosts` or `--rdzv_id` a name of the job",
        false},
    Row{kAccRound, "number of the attempt, from 0", false},
    Row{kAccRestartCount, "restarts so far", false},
    Row{kAccRestartReason, "why this round began: empty in the first, else the failure in words",
        false},
    Row{kAccAgentSocket,
        "the agent's socket for messages and the key-value store: worker-socket.md", false},
    Row{kAccHeartbeatPage,
        "PATH:OFFSET of this worker's place in memory that it shares with the agent, for "
        "heartbeats: "
        "worker-socket.md",
        false},
    Row{kColumns,
        "width of the terminal that shows the output, less the prefix; unless set by the caller, "
        "and not where a worker has the terminal itself",
        false},
    Row{kLines, "height of that terminal, likewise", false},
    Row{kNoColor,
        "1 with --pty where the output goes to no terminal; unless the caller set it, FORCE_COLOR "
        "or CLICOLOR_FORCE",
        false},
    Row{kPager, "cat, with --pty: a pager would wait for keys", false},
    Row{kGitPager, "likewise", false},
};

std::span<const Row> rows() { return kRows; }

}  // namespace acc::worker_env
