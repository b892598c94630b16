#pragma once

#include "common/error.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Jobs as acc-ctl lists them, from the answers of services and agents (pure). What answers is
/// foreign: a field that is missing or of another kind counts as absent.
namespace acc::ctl {

struct JobRow {
  std::string id;
  std::string name;
  std::string user;
  std::string state;  ///< waiting running stopping succeeded failed stopped
  std::optional<int> exit_code;
  std::uint64_t slots = 0;
  std::int64_t started_ms = 0;  ///< wall clock; 0: never
  std::int64_t ended_ms = 0;
  std::string reason;
  std::vector<std::string> words;
  std::string socket;          ///< of the service, or of the job's agent
  bool is_of_service = false;  ///< else a plain acc-launch
  std::string program{};       ///< of a job whose words only name a file of jobs.d
  std::string at{};            ///< before its paths: "/v1/nodes/b"; empty: on the socket's node
};

/// In the API of our daemon: "/v1/nodes/b", or nothing for its own node.
[[nodiscard]] std::string node_prefix(const std::string& node);

/// Of GET /v1/jobs; nothing if it isn't that.
[[nodiscard]] std::optional<std::vector<JobRow>> jobs_of_service(const std::string& body,
                                                                 const std::string& socket);
/// Of GET /v1/jobs/ID; nothing if it isn't that.
[[nodiscard]] std::optional<JobRow> job_of_service(const nlohmann::json& job,
                                                   const std::string& socket);
/// Of an agent's status. `file`: its socket's name, "JOB.PID.sock", whose JOB.PID is the id.
[[nodiscard]] std::optional<JobRow> job_of_agent(const std::string& status,
                                                 const std::string& socket, const std::string& user,
                                                 std::int64_t now_ms);

/// The job of an agent that gives no answer: it is suspended, or its machine is very busy.
[[nodiscard]] JobRow silent_job(const std::string& socket, const std::string& user);

/// By its id, its name if one living job or one job at all has it, or an unambiguous prefix of the
/// id. not_found, or bad_usage where several are meant. Users choose names: a living job of `user`
/// comes before those of others, which root sees, too, and beside an ended one of `user` a living
/// one of another isn't meant without its id.
[[nodiscard]] Result<JobRow> find_job(const std::vector<JobRow>& jobs, std::string_view wanted,
                                      std::string_view user);
[[nodiscard]] bool is_over(std::string_view state);

/// What a job runs, without the flags of acc-launch or of an interpreter before it.
[[nodiscard]] std::string command_text(const JobRow& job);
/// The document of `ps --json`.
[[nodiscard]] std::string jobs_json(const std::vector<JobRow>& jobs);
[[nodiscard]] std::string jobs_table(const std::vector<JobRow>& jobs, std::int64_t now_ms,
                                     std::size_t width);
/// Why a job failed, by its report; empty: it says nothing of that.
[[nodiscard]] std::string failure_text(const nlohmann::json& report);
/// What `status` prints: a few lines and the table of ranks. `live`: the agent's status, or null.
[[nodiscard]] std::string job_text(const JobRow& job, const nlohmann::json& live,
                                   std::int64_t now_ms, std::size_t width);

// ---- reading foreign JSON ----
/// Null: it is no JSON, or nested too deeply.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);
[[nodiscard]] std::string text_of(const nlohmann::json& object, const char* key);
[[nodiscard]] std::int64_t number_of(const nlohmann::json& object, const char* key);
/// Whether it is there and true.
[[nodiscard]] bool has_flag(const nlohmann::json& object, const char* key);
/// Empty: it isn't there, or no list.
[[nodiscard]] nlohmann::json list_of(const nlohmann::json& object, const char* key);
[[nodiscard]] double real_of(const nlohmann::json& object, const char* key);
[[nodiscard]] std::string to_line(const nlohmann::json& value);  ///< never throws
/// Of an error's answer: its sentence and its complaints, printable; empty if it has none.
[[nodiscard]] std::string error_of(const std::string& body);
/// Does this reply say that another node can't be reached, or gives no answer? One that knows
/// another secret, or is another node, does answer.
[[nodiscard]] bool is_unanswered(unsigned status, const std::string& body);
/// A daemon that starts (503), or one that doesn't reach the job's node now, where a restart of the
/// daemon takes a moment as well (502, 504).
[[nodiscard]] bool may_come_back(unsigned status);
/// Another request of this kind may be heard where this one was not: the daemon or the job's node
/// was away or had too many requests, and neither said no.
[[nodiscard]] bool may_be_asked_again(unsigned status, const std::string& body);

}  // namespace acc::ctl
