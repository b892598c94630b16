#pragma once

#include <span>
#include <string_view>

/// The contract between launcher and worker: names of variables from torchrun and Accelerate, and
/// our own (ACC_*).
namespace acc::worker_env {

inline constexpr std::string_view kRank = "RANK";
inline constexpr std::string_view kLocalRank = "LOCAL_RANK";
inline constexpr std::string_view kWorldSize = "WORLD_SIZE";
inline constexpr std::string_view kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr std::string_view kGroupRank = "GROUP_RANK";
inline constexpr std::string_view kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr std::string_view kRoleName = "ROLE_NAME";
inline constexpr std::string_view kRoleRank = "ROLE_RANK";
inline constexpr std::string_view kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr std::string_view kMasterAddr = "MASTER_ADDR";
inline constexpr std::string_view kMasterPort = "MASTER_PORT";
inline constexpr std::string_view kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr std::string_view kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr std::string_view kRunId = "TORCHELASTIC_RUN_ID";
inline constexpr std::string_view kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr std::string_view kErrorFile = "TORCHELASTIC_ERROR_FILE";
inline constexpr std::string_view kNcclAsync = "NCCL_ASYNC_ERROR_HANDLING";
inline constexpr std::string_view kTorchNcclAsync = "TORCH_NCCL_ASYNC_ERROR_HANDLING";

inline constexpr std::string_view kPmiRank = "PMI_RANK";
inline constexpr std::string_view kPmiSize = "PMI_SIZE";
inline constexpr std::string_view kPmiFd = "PMI_FD";
inline constexpr std::string_view kMpiLocalRank = "MPI_LOCALRANKID";
inline constexpr std::string_view kMpiLocalSize = "MPI_LOCALNRANKS";

inline constexpr std::string_view kAccJobId = "ACC_JOB_ID";
inline constexpr std::string_view kAccRound = "ACC_ROUND";
inline constexpr std::string_view kAccRestartCount = "ACC_RESTART_COUNT";
inline constexpr std::string_view kAccRestartReason = "ACC_RESTART_REASON";
inline constexpr std::string_view kAccAgentSocket = "ACC_AGENT_SOCKET";
inline constexpr std::string_view kAccHeartbeatPage = "ACC_HEARTBEAT_PAGE";

inline constexpr std::string_view kColumns = "COLUMNS";
inline constexpr std::string_view kLines = "LINES";
inline constexpr std::string_view kNoColor = "NO_COLOR";
inline constexpr std::string_view kPager = "PAGER";
inline constexpr std::string_view kGitPager = "GIT_PAGER";

/// The worker's socket in a value of ACC_AGENT_SOCKET, an abstract one, which begins with '@';
/// empty: none. A path is the daemon's, exported for acc-ctl, and says nothing of this process.
[[nodiscard]] constexpr std::string_view worker_socket_in(std::string_view value) {
  return value.starts_with('@') ? value : std::string_view{};
}

struct Row {
  std::string_view name;
  std::string_view meaning;
  bool elastic_only;  ///< not set for a job of one plain process
};

/// Every variable that the agent sets by itself, in the order of docs/environment.md.
[[nodiscard]] std::span<const Row> rows();

}  // namespace acc::worker_env
