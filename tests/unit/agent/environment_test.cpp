#include "agent/environment.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <vector>

using namespace acc;
using namespace acc::agent;

namespace {

std::map<std::string, std::string> as_map(const WorkerEnvironment& worker) {
  std::map<std::string, std::string> map;
  for (char* const* envp = worker.pointers.data(); *envp != nullptr; ++envp) {
    const std::string entry{*envp};
    const auto equals = entry.find('=');
    CHECK(map.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second);  // no name twice
  }
  return map;
}

JobPlan plan_of(JobKind kind) {
  JobPlan plan;
  plan.kind = kind;
  plan.local_world_size = 4;
  plan.env = {{"ACCELERATE_MIXED_PRECISION", "bf16"}, {"PATH", "/plan/bin"}};
  return plan;
}

RoundFacts facts_of() {
  RoundFacts facts;
  facts.assignment = {Round{2},     NodeRank{1},  2,
                      {Rank{4}, 4}, WorldSize{8}, {"node0", 29501, false}};
  facts.job_id = "none-abcdefgh";
  facts.restarts = 1;
  facts.max_restarts = 3;
  facts.restart_reason = "rank 3 exited with code 7";
  facts.error_folder = "/run/x/attempt_2";
  facts.agent_socket = "@acc-launch/worker/1-x";
  return facts;
}

}  // namespace

TEST_CASE("what a worker learns of the console doesn't replace what the caller has set, but pagers",
          "[agent][environment]") {
  auto facts = facts_of();
  facts.console = [](LocalRank local) {
    return std::vector<Variable>{{"COLUMNS", std::to_string(100 + local.value())},
                                 {"LINES", "30"},
                                 {"NO_COLOR", "1"},
                                 {"PAGER", "cat", true}};
  };
  const std::vector<const char*> caller{"COLUMNS=66", "PAGER=less", "CLICOLOR_FORCE=1"};
  RoundEnvironment environment{plan_of(JobKind::elastic), caller, facts};
  for (const std::uint32_t i : {0U, 1U}) {
    const auto map = as_map(environment.for_worker(LocalRank{i}));
    CHECK(map.at("COLUMNS") == "66");
    CHECK(map.at("LINES") == "30");
    CHECK(map.at("PAGER") == "cat");
    CHECK_FALSE(map.contains("NO_COLOR"));
  }
  RoundEnvironment bare{plan_of(JobKind::process), {}, facts};
  CHECK(as_map(bare.for_worker(LocalRank{1})).at("COLUMNS") == "101");
  CHECK(as_map(bare.for_worker(LocalRank{1})).at("NO_COLOR") == "1");
}

TEST_CASE("a worker of an elastic job finds torchrun's variables", "[agent][environment]") {
  const std::vector<const char*> caller{"HOME=/root", "PATH=/bin", "RANK=77",
                                        "TORCHELASTIC_ERROR_FILE=/outer"};
  RoundEnvironment environment{plan_of(JobKind::elastic), caller, facts_of()};
  const auto map = as_map(environment.for_worker(LocalRank{2}));
  const std::map<std::string, std::string> expected{
      {"RANK", "6"},
      {"LOCAL_RANK", "2"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "6"},
      {"ROLE_WORLD_SIZE", "8"},
      {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "29501"},
      {"TORCHELASTIC_RESTART_COUNT", "1"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RUN_ID", "none"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", "/run/x/attempt_2/2/error.json"},
      {"NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"ACC_ROUND", "2"},
      {"ACC_RESTART_REASON", "rank 3 exited with code 7"},
      {"ACC_AGENT_SOCKET", "@acc-launch/worker/1-x"},
      {"HOME", "/root"},
      {"PATH", "/plan/bin"},
      {"ACCELERATE_MIXED_PRECISION", "bf16"}};
  for (const auto& [name, value] : expected) {
    INFO(name);
    CHECK(map.at(name) == value);
  }
}

TEST_CASE("a worker never meets the agent of an outer job", "[agent][environment]") {
  const std::vector<const char*> caller{"ACC_AGENT_SOCKET=@outer"};
  auto facts = facts_of();
  const auto kind = GENERATE(JobKind::elastic, JobKind::process);
  RoundEnvironment with{plan_of(kind), caller, facts};
  CHECK(as_map(with.for_worker(LocalRank{0})).at("ACC_AGENT_SOCKET") == facts.agent_socket);
  facts.agent_socket.clear();
  RoundEnvironment without{plan_of(kind), caller, facts};
  CHECK_FALSE(as_map(without.for_worker(LocalRank{0})).contains("ACC_AGENT_SOCKET"));
}

TEST_CASE("a plain process gets no rank variables and keeps the caller's", "[agent][environment]") {
  const std::vector<const char*> caller{"RANK=77", "MASTER_PORT=1"};
  RoundEnvironment environment{plan_of(JobKind::process), caller, facts_of()};
  const auto map = as_map(environment.for_worker(LocalRank{0}));
  CHECK(map.at("RANK") == "77");
  CHECK(map.at("MASTER_PORT") == "1");
  CHECK_FALSE(map.contains("WORLD_SIZE"));
  CHECK(map.at("ACC_JOB_ID") == "none-abcdefgh");
}

TEST_CASE("what the caller set for NCCL stays", "[agent][environment]") {
  const std::vector<const char*> caller{"NCCL_ASYNC_ERROR_HANDLING=0"};
  RoundEnvironment environment{plan_of(JobKind::elastic), caller, facts_of()};
  const auto map = as_map(environment.for_worker(LocalRank{0}));
  CHECK(map.at("NCCL_ASYNC_ERROR_HANDLING") == "0");
  CHECK(map.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
}

TEST_CASE("the service manager's variables don't reach a worker, which would answer in our name",
          "[agent][environment]") {
  const std::vector<const char*> caller{
      "NOTIFY_SOCKET=/run/n", "ACC_ETCD_USER=a:b", "WATCHDOG_USEC=1",  "LISTEN_FDS=1",
      "JOURNAL_STREAM=1:2",   "no equals sign",    "ACC_JOB_FOLDER=/f"};
  RoundEnvironment environment{plan_of(JobKind::process), caller, facts_of()};
  const auto map = as_map(environment.for_worker(LocalRank{0}));
  CHECK_FALSE(map.contains("NOTIFY_SOCKET"));
  CHECK_FALSE(map.contains("ACC_ETCD_USER"));
  CHECK_FALSE(map.contains("WATCHDOG_USEC"));
  CHECK_FALSE(map.contains("LISTEN_FDS"));
  CHECK_FALSE(map.contains("ACC_JOB_FOLDER"));
  CHECK(map.at("JOURNAL_STREAM") == "1:2");
}
