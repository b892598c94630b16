#include "launcher/ctl/bridge_answers.hpp"

#include "common/exit_codes.hpp"
#include "common/text.hpp"
#include "launcher/ctl/http_response.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <string_view>

namespace acc::ctl {

namespace {

constexpr std::string_view kOfSubmit = ": submit with --wait, or later";

static_assert(agent::kAwayExit == to_int(ExitCode::nodes_missing));

/// It has no room now, and may have it later.
bool is_full(unsigned status, const std::string& body) {
  return status == kHttpTooManyRequests && error_of(body).ends_with(kOfSubmit);
}

}  // namespace

std::string refusal_text(unsigned status, const std::string& body) {
  auto why = error_of(body);
  std::ranges::replace(why, '\n', ' ');
  if (why.empty()) return "its acc-agent answers with status " + std::to_string(status);
  if (is_full(status, body)) {
    why.resize(why.size() - kOfSubmit.size());
    why += agent::kNoRoomCure;
  }
  // What acc-launch there says has its name in front.
  constexpr std::string_view kOurs = "acc-launch: ";
  if (why.starts_with(kOurs)) why.erase(0, kOurs.size());
  return why;
}

int code_of_refusal(unsigned status, const std::string& body) {
  if (is_full(status, body)) return agent::kNoRoomExit;
  const auto code = text_of(parse_json(body), "code");
  if (code == "no_such_user" || code == "authentication_failed" || code == "version_differs" ||
      code == "wrong_node")
    return to_int(ExitCode::refused);
  if (status == kHttpBadRequest) return to_int(ExitCode::usage);
  // Or it takes no jobs now, as it is drained.
  return is_away(status, body) ? agent::kAwayExit : to_int(ExitCode::failure);
}

bool is_away(unsigned status, const std::string& body) {
  const bool is_crowded = status == kHttpTooManyRequests && !is_full(status, body);
  return is_unanswered(status, body) || status == kHttpUnavailable || is_crowded;
}

bool is_there_but_full(unsigned status, const std::string& body) {
  const auto code = text_of(parse_json(body), "code");
  return (status == kHttpTooManyRequests && code == "node_full") ||
         (status == kHttpUnavailable && code == "busy");
}

bool is_unheard(unsigned status, const std::string& body) {
  return status == kHttpGatewayTimeout && text_of(parse_json(body), "code") != "no_contact";
}

bool is_still_in_progress(unsigned status, const std::string& body) {
  return status == kHttpUnavailable && refusal_text(status, body).starts_with("not done within");
}

bool is_uncertain(unsigned status, const std::string& body) {
  const auto code = text_of(parse_json(body), "code");
  return code == "node_unreachable" || code == "no_answer" || is_still_in_progress(status, body);
}

agent::Prepared prepared_by(const std::string& body) {
  const auto answer = parse_json(body);
  return {text_of(answer, "version"), text_of(answer, "daemon")};
}

std::string submitted_job(unsigned status, const std::string& body) {
  return status == kHttpCreated ? text_of(parse_json(body), "id") : std::string{};
}

std::string listed_job(unsigned status, const std::string& body, const std::string& name,
                       const std::string& user) {
  const auto jobs = status == kHttpOk ? jobs_of_service(body, {}) : std::nullopt;
  if (!jobs) return {};
  // Root's list has the jobs of all users, who choose their names.
  const auto found = std::ranges::find_if(*jobs, [&](const JobRow& job) {
    return job.name == name && job.user == user && job.state != "stopped";
  });
  return found != jobs->end() ? found->id : std::string{};
}

bool is_heard(unsigned status) {
  return status == kHttpAccepted || status == kHttpConflict || status == kHttpNotFound;
}

std::optional<JobRow> job_answered(unsigned status, const std::string& body) {
  return status == kHttpOk ? job_of_service(parse_json(body), {}) : std::nullopt;
}

int code_of_end(const JobRow& job) {
  if (job.exit_code) return *job.exit_code & 0xff;
  return job.state == "stopped" ? 128 + SIGTERM : to_int(ExitCode::agent_lost);
}

std::vector<agent::OutputLost> losses_of(const std::string& body) {
  const auto job = parse_json(body);
  const auto report = job.is_object() ? job.find("report") : job.end();
  if (report == job.end()) return {};
  const auto count = [](const nlohmann::json& loss, const char* key) {
    const auto found = loss.find(key);
    const bool is_count = found != loss.end() && found->is_number_unsigned();
    return is_count ? found->get<std::uint64_t>() : 0;
  };
  std::vector<agent::OutputLost> lost;
  for (const auto& loss : list_of(*report, "losses")) {
    if (!loss.is_object()) continue;
    lost.push_back(
        {count(loss, "lines"), count(loss, "bytes"), text_of(loss, "where"), text_of(loss, "why")});
  }
  return lost;
}

std::string start_failure_of(const std::string& body) {
  const auto job = parse_json(body);
  const auto report = job.is_object() ? job.find("report") : job.end();
  if (report == job.end()) return {};
  const auto why = text_of(*report, "start_failure");
  return printable(why.empty() ? text_of(*report, "reason") : why, 500);
}

std::string output_refusal_of(const std::string& body) {
  const auto job = parse_json(body);
  const auto live = job.is_object() ? job.find("live") : job.end();
  if (live == job.end()) return {};
  for (const auto& loss : list_of(*live, "losses")) {
    const auto where = text_of(loss, "where");
    const bool is_own = where == "stdout" || where == "stderr" || where == "console";
    if (is_own && has_flag(loss, "goes_on")) return text_of(loss, "why");
  }
  return {};
}

}  // namespace acc::ctl
