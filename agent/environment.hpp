#pragma once

#include "agent/job_plan.hpp"
#include "agent/spawn.hpp"

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// A worker's environment: the caller's variables, the plan's, and the worker's ranks (pure).
namespace acc::agent {

/// This node's share of a round, assigned by the rendezvous (static: by arithmetic).
struct Assignment {
  Round round{0};
  NodeRank node_rank{0};
  std::uint32_t nodes = 1;
  RankRange ranks;  ///< of this node
  WorldSize world_size{1};
  Master master;
};

struct RoundFacts {
  Assignment assignment;
  std::string job_id;
  std::uint32_t restarts = 0;
  std::uint32_t max_restarts = 0;  ///< of the whole job, as the coordinator counts
  std::string restart_reason;
  std::string error_folder;    ///< <run folder>/attempt_<K>; empty: no error files
  std::string agent_socket;    ///< address of the worker server; empty: there is none
  std::string heartbeat_page;  ///< path of the page of heartbeats; empty: there is none
  /// Of one worker: how it sees where its output goes. May be empty.
  std::function<std::vector<Variable>(LocalRank)> console;
};

/// envp of one worker. Points into the RoundEnvironment that made it, wherever that is moved.
struct WorkerEnvironment {
  std::vector<std::string> own;  ///< what the others don't have, or have otherwise
  std::vector<char*> pointers;   ///< ends with a null
};

/// Builds the environments of one round: what all workers share is laid out once, so that 256
/// workers stay cheap.
class RoundEnvironment {
 public:
  RoundEnvironment(const JobPlan& plan, std::span<const char* const> caller,
                   const RoundFacts& facts);

  [[nodiscard]] WorkerEnvironment for_worker(LocalRank local);
  /// Value of a shared variable ("PATH"), or nullptr.
  [[nodiscard]] const char* find(std::string_view name) const;

 private:
  void add_shared(std::string_view name, std::string value);
  void add_console(LocalRank local, WorkerEnvironment& worker,
                   std::vector<std::string>& overridden) const;
  [[nodiscard]] bool is_set_by_caller(std::string_view name) const;

  bool elastic_;
  bool pmi_;
  RankRange ranks_;
  std::string error_folder_;
  std::string heartbeat_page_;
  std::function<std::vector<Variable>(LocalRank)> console_;
  std::map<std::string, std::string, std::less<>> shared_;
  std::vector<std::string> shared_text_;
};

[[nodiscard]] std::string error_file_path(const std::string& error_folder, LocalRank local);

}  // namespace acc::agent
