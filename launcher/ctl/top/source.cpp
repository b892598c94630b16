#include "launcher/ctl/top/source.hpp"

#include "common/json_bytes.hpp"
#include "common/text.hpp"
#include "common/user_name.hpp"
#include "launcher/ctl/invocation.hpp"
#include "launcher/ctl/launches.hpp"
#include "launcher/ctl/steer.hpp"
#include "launcher/ctl/wire.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace acc::ctl::top {

namespace {

constexpr Millis kAgentPatience{3'000};
constexpr std::size_t kMostAtOnce = 32;
/// Of a long stream the end is shown.
constexpr std::uint64_t kFirstLook = 256 * 1024;
constexpr std::size_t kMostOfLog = std::size_t{4} << 20U;
constexpr unsigned kRangeNotSatisfiable = 416;

std::string path_of(const JobRow& job) { return job.at + "/v1/jobs/" + job.id; }

PartAnswer ask_service_for(const JobRow& job) {
  PartAnswer part{.is_of_service = true};
  auto answer = ask_service(job.socket, {.target = path_of(job) + "?last_lines=1&gpus=1"});
  // A daemon of an earlier version, which wasn't restarted yet.
  if (answer && answer->status == kHttpBadRequest)
    answer = ask_service(job.socket, {.target = path_of(job)});
  if (!answer) {
    part.why = answer.error().what;
  } else if (answer->status == kHttpOk) {
    part.how = PartAnswer::How::answered;
    part.body = std::move(answer->body);
  } else if (answer->status == kHttpNotFound) {
    part.how = PartAnswer::How::gone;
  } else {
    part.why = failure_of(*answer).text;
  }
  return part;
}

PartAnswer ask_agent_for(const JobRow& job) {
  PartAnswer part;
  const auto connected = connect_to(job.socket);
  if (!connected) {  // it takes its socket away at its end; one that was killed leaves it
    part.how = PartAnswer::How::gone;
    return part;
  }
  auto answer =
      ask_agent(job.socket, R"({"do":"status","last_lines":true,"gpus":true})", kAgentPatience);
  const auto refused = answer ? error_of(*answer) : answer.error().what;
  if (!refused.empty()) {
    part.why = refused;
    return part;
  }
  part.how = PartAnswer::How::answered;
  part.body = std::move(*answer);
  return part;
}

/// One stream of one rank from the service's files.
LogAnswer read_file(const JobRow& job, const LogPlace& place, std::optional<std::uint64_t> from) {
  LogAnswer log;
  const std::string target = path_of(job) +
                             "/logs?format=raw&rank=" + std::to_string(place.local_rank) +
                             "&stream=" + (place.is_stderr ? "stderr" : "stdout") + "&from=";
  const auto read = [&](const std::string& offset) -> Result<unsigned> {
    auto exchange = Exchange::open(job.socket, {.target = target + offset});
    if (!exchange) return exchange.error();
    log.from = parse_number<std::uint64_t>(exchange->header("X-Acc-From")).value_or(0);
    log.text.clear();
    std::string piece;
    const auto until = clock_now() + kAnswerPatience;
    while (log.text.size() < kMostOfLog && exchange->next(piece, until, nullptr) == Arrived::data)
      log.text += piece;
    return exchange->status();
  };
  auto status = read(from ? std::to_string(*from) : "end");
  const bool is_first = status && *status == kHttpOk && !from && log.from > 0;
  if (is_first) status = read(std::to_string(log.from > kFirstLook ? log.from - kFirstLook : 0));
  if (!status) {
    log.trouble = status.error().what;
  } else if (*status == kRangeNotSatisfiable) {
    log.is_anew = true;
    log.text.clear();
  } else if (*status != kHttpOk) {
    log.trouble = failure_of(Answer{*status, log.text}).text;
  }
  return log;
}

/// The same from what its agent keeps in memory.
LogAnswer read_memory(const JobRow& job, const LogPlace& place, std::optional<std::uint64_t> from) {
  LogAnswer log;
  const nlohmann::json request{{"do", "output"},
                               {"local_rank", place.local_rank},
                               {"stream", place.is_stderr ? "stderr" : "stdout"},
                               {"from", from.value_or(0)}};
  const auto answer = ask_agent(job.socket, request.dump(), kAgentPatience);
  if (!answer) {
    log.trouble = "its acc-launch doesn't answer: " + answer.error().what;
    return log;
  }
  log.trouble = error_of(*answer);
  const auto reply = parse_json(*answer);
  log.round = number_of(reply, "round");
  log.from = static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_of(reply, "from")));
  log.text = bytes_of(text_of(reply, "text"));
  const auto captured = reply.is_object() ? reply.find("captured") : reply.end();
  const bool is_elsewhere = log.trouble.empty() && captured != reply.end() && *captured == false;
  if (is_elsewhere && place.is_stderr)
    log.trouble = "its stderr is on stdout (Tab), or goes to where acc-launch was started";
  else if (is_elsewhere)
    log.trouble = "its output goes to where acc-launch was started; --log_dir would keep it";
  return log;
}

}  // namespace

Source::Source(Services services, std::string at)
    : services_{std::move(services)}, at_{std::move(at)} {}

Source::Target Source::target_of(const std::string& name, const LaunchState& launch) {
  Target target{name, row_of(launch), {}};
  for (const auto& one : launch.parts) {
    Part part{one.part.host, one.job.value_or(JobRow{}), one.why};
    part.row.socket = launch.record.socket;
    part.row.at = node_prefix(one.part.node);
    part.row.is_of_service = true;
    if (!one.job) part.row.id = one.part.job;
    target.parts.push_back(std::move(part));
  }
  return target;
}

Result<Source::Target> Source::find(const std::string& name) const {
  const auto records = at_.empty() ? agent::read_records() : std::vector<agent::LaunchRecord>{};
  if (const auto* record = find_record(records, name)) {
    const auto asked = ask_launches({*record});
    if (!asked.empty()) return target_of(name, asked.front());
    return Error{Errc::not_found, record->id + " is gone from all of its nodes"};
  }
  const auto all = find_jobs(services_, now_ms(), at_);
  const auto launches = ask_launches(records_from(records, name));
  const auto found = find_meant(all.jobs, launches, name, user_name(::geteuid()));
  if (found && found->launch) return target_of(name, *found->launch);
  if (found) return Target{name, found->job, {{"", found->job}}};
  // Perhaps because the service that knows it doesn't answer.
  if (found.error().code != Errc::bad_usage && is_service_missed(services_, all, at_))
    return Error{all.error->code == Errc::not_found ? Errc::unavailable : all.error->code,
                 unanswered(services_, *all.error)};
  return found.error();
}

Result<void> Source::look_up(const std::string& name) {
  auto found = find(name);
  if (!found) return found.error();
  target_ = std::move(*found);
  return {};
}

JobsAnswer Source::jobs() const {
  auto all = find_jobs(services_, now_ms(), at_);
  JobsAnswer answer;
  if (at_.empty()) {
    const auto launches = ask_launches(agent::read_records(), kListedNodePatience);
    all.jobs = without_parts(std::move(all.jobs), launches);
    for (const auto& launch : launches) all.jobs.push_back(row_of(launch));
  }
  // Many machines have no service: that alone is no trouble.
  const bool has_nothing = all.answered.empty() && all.error && all.jobs.empty();
  if (is_service_missed(services_, all, at_) || has_nothing)
    answer.trouble =
        unanswered(services_, *all.error) + (all.unseen.empty() ? "" : "; " + all.unseen);
  answer.jobs = std::move(all.jobs);
  return answer;
}

JobAnswer Source::job(const std::string& id) {
  JobAnswer answer{id, {}, {}, {}};
  const auto has_unknown = [&] {
    return std::ranges::any_of(target_->parts,
                               [](const Part& part) { return part.row.id.empty(); });
  };
  if (!target_ || target_->name != id || has_unknown()) {
    if (const auto found = look_up(id); !found && (!target_ || target_->name != id)) {
      answer.trouble = found.error().what;
      return answer;
    }
  }
  const auto& parts = target_->parts;
  answer.known = target_->known;
  answer.parts.resize(parts.size());
  std::atomic<std::size_t> next{0};
  const auto ask = [&] {
    for (auto i = next++; i < parts.size(); i = next++) {
      const auto& part = parts[i];
      auto& into = answer.parts[i];
      if (part.row.id.empty()) {
        into.is_of_service = true;
        into.how = part.why.empty() ? PartAnswer::How::gone : PartAnswer::How::silent;
        into.why = part.why;
      } else {
        into = part.row.is_of_service ? ask_service_for(part.row) : ask_agent_for(part.row);
      }
      into.node = part.node;
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(parts.size(), kMostAtOnce); ++i) threads.emplace_back(ask);
  ask();
  threads.clear();
  return answer;
}

LogAnswer Source::log(const std::string& id, const LogPlace& place,
                      std::optional<std::uint64_t> from) {
  LogAnswer answer;
  if ((!target_ || target_->name != id) && !look_up(id)) {
    answer.trouble = "the job can't be found";
  } else if (place.part >= target_->parts.size() || target_->parts[place.part].row.id.empty()) {
    answer.trouble = "the node of this rank doesn't answer";
  } else {
    const auto& row = target_->parts[place.part].row;
    answer = row.is_of_service ? read_file(row, place, from) : read_memory(row, place, from);
  }
  answer.id = id;
  answer.place = place;
  answer.asked_from = from;
  return answer;
}

OrderAnswer Source::carry_out(const Order& wanted) {
  auto found = find(wanted.id);
  if (!found) return {found.error().what, false};
  auto body = nlohmann::json::object();
  if (wanted.verb == "signal") body["signal"] = "SIG" + wanted.signal;
  Failure last{CtlExit::refused, "nothing of " + wanted.id + " runs"};
  // The agents of a job on several nodes pass on to all what one of them hears; one that stops
  // already may not hear.
  const bool is_to_all = wanted.verb == "stop" && found->known.state == "stopping";
  for (const auto& part : found->parts) {
    if (part.row.id.empty() || is_over(part.row.state)) continue;
    last = order(part.row, wanted.verb, body);
    if (last.exit == CtlExit::done && !is_to_all) break;
  }
  return {last.text, last.exit == CtlExit::done};
}

}  // namespace acc::ctl::top
