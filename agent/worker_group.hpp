#pragma once

#include "agent/environment.hpp"
#include "agent/output_hub.hpp"
#include "agent/spawn.hpp"
#include "agent/supervisor.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace acc::agent {

class Containment;
class PmiServer;

/// What is known of one worker of a round; kept for the report.
struct WorkerRecord {
  LocalRank local_rank;
  Rank rank;
  pid_t pid = 0;
  std::optional<ExitStatus> status;  ///< none: alive, or never started
  Instant ended{};
  std::uint64_t peak_rss_bytes = 0;
  bool asked_to_end = false;  ///< we had signalled it before it ended: not to blame
  bool was_stopped = false;   ///< found in state T when it was asked to end
  std::optional<int> abort_code{};  ///< of MPI_Abort
};

/// The worker processes of the current round. Each exit is told once, in the order in which the
/// workers died.
class WorkerGroup {
 public:
  using OnExit = std::function<void(const WorkerRecord&)>;

  WorkerGroup(boost::asio::io_context& io, Containment& containment, OutputHub& output,
              OnExit on_exit);

  struct Launch {
    std::string path;  ///< of the program, PATH already searched
    char* const* argv = nullptr;
    std::uint32_t count = 1;
    Rank first_rank{0};
    std::optional<LocalRank> stdin_rank;  ///< gets our stdin; the others get /dev/null
    PmiServer* pmi = nullptr;     ///< null: no connection for PMI
    bool stdin_terminal = false;  ///< that worker's group becomes the terminal's foreground group
  };
  /// Starts all workers; on the first failure returns it, those already started keep running.
  std::optional<StartFailure> start(const Launch& launch, RoundEnvironment& environment);

  /// To each living worker's process group. SIGTERM is followed by SIGCONT, so that a stopped
  /// worker can heed it.
  void signal(int signo);
  /// Kills a worker that asked for it (MPI_Abort); it counts as exited with `code`.
  void abort(Rank rank, int code);
  /// Takes the exit status of orphans that came up to us.
  void reap_orphans();
  /// True for the leader of a living worker.
  [[nodiscard]] bool is_living_worker(pid_t pid) const { return living_.contains(pid); }
  [[nodiscard]] const std::vector<WorkerRecord>& records() const { return records_; }
  [[nodiscard]] Spawner& spawner() { return spawner_; }

 private:
  void watch(std::size_t index);
  void take_exit(std::size_t index);

  boost::asio::io_context& io_;  // all three outlive the group: the agent owns them
  Containment& containment_;
  OutputHub& output_;
  OnExit on_exit_;
  Spawner spawner_;
  UniqueFd dev_null_;
  std::vector<WorkerRecord> records_;
  std::vector<std::unique_ptr<boost::asio::posix::stream_descriptor>> pidfds_;
  std::unordered_map<pid_t, std::size_t> living_;
};

}  // namespace acc::agent
